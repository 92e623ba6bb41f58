package main

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
)

// What the API server does with an object of the kind before it stores it. Kinds without an entry (Service: its
// strategy allocates addresses) are defaulted and not validated.
var strategies = map[string]rest.RESTCreateStrategy{
	"CSIDriver":             csidriver.Strategy,
	"CSINode":               csinode.Strategy,
	"CSIStorageCapacity":    csistoragecapacity.Strategy,
	"Namespace":             namespace.Strategy,
	"Node":                  node.Strategy,
	"PersistentVolume":      persistentvolume.Strategy,
	"PersistentVolumeClaim": persistentvolumeclaim.Strategy,
	"Pod":                   pod.Strategy,
	"PodDisruptionBudget":   poddisruptionbudget.Strategy,
	"ReplicaSet":            replicaset.Strategy,
	"StatefulSet":           statefulset.Strategy,
	"StorageClass":          storageclass.Strategy,
	"VolumeAttachment":      volumeattachment.Strategy,
}

// Others write these, or later requests do: creating the object would leave them out or make them up.
var keptMetadata = []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}

// Refused is an object that the API server does not take.
type Refused struct{ error }

// admitted is the object as the API server stores it, and its JSON.
func admitted(raw []byte) (runtime.Object, []byte, error) {
	external, kind, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	legacyscheme.Scheme.Default(external)
	if strategy, is := strategies[kind.Kind]; is {
		if external, err = created(external, *kind, strategy); err != nil {
			return nil, nil, err
		}
	}
	external.GetObjectKind().SetGroupVersionKind(*kind)
	stored, err := asWritten(external, raw)
	if err != nil {
		return nil, nil, err
	}
	object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	return object, stored, err
}

func created(external runtime.Object, kind schema.GroupVersionKind, strategy rest.RESTCreateStrategy) (runtime.Object, error) {
	hub := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	internal, err := legacyscheme.Scheme.ConvertToVersion(external, hub)
	if err != nil {
		return nil, err
	}
	about, err := meta.Accessor(internal)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(about)
	ctx := genericapirequest.WithRequestInfo(
		genericapirequest.WithNamespace(context.Background(), about.GetNamespace()),
		&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version},
	)
	if err := rest.BeforeCreate(strategy, ctx, internal); err != nil {
		return nil, Refused{fmt.Errorf("%s %s: %w", kind.Kind, about.GetName(), err)}
	}
	return legacyscheme.Scheme.ConvertToVersion(internal, kind.GroupVersion())
}

// asWritten is the JSON of the object with the status and the metadata that were written.
func asWritten(object runtime.Object, raw []byte) ([]byte, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var stored, written map[string]any
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &written); err != nil {
		return nil, err
	}
	copied(stored, written, "status")
	metadata, is := stored["metadata"].(map[string]any)
	if !is {
		return nil, fmt.Errorf("no metadata in %s", encoded)
	}
	writtenMetadata, _ := written["metadata"].(map[string]any)
	for _, key := range keptMetadata {
		copied(metadata, writtenMetadata, key)
	}
	return json.Marshal(stored)
}

func copied(to, from map[string]any, key string) {
	if value, is := from[key]; is {
		to[key] = value
	} else {
		delete(to, key)
	}
}
