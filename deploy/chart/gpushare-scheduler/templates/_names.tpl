{{/* The image of both programs. */}}
{{- define "gpushare.image" -}}
{{- with .Values.image -}}
{{- if not .repository -}}
{{- fail "image.repository: name the image that you have pushed, as registry.example/gpushare-scheduler; deploy/README.md, \"The image\", says how to build it" -}}
{{- end -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}
{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object: (list ROOT NAME [EXTRA]). EXTRA wins. */}}
{{- define "gpushare.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "app.kubernetes.io/name" (index . 1)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- if gt (len .) 2 -}}
{{- $labels = merge (dict) (index . 2) $labels -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{/* Labels of the pods of a workload: (list ROOT NAME EXTRA). Without the chart's version, which would replace them all. */}}
{{- define "gpushare.podLabels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict "app.kubernetes.io/name" (index . 1) "app.kubernetes.io/instance" $root.Release.Name -}}
{{- toYaml (merge $labels (index . 2)) -}}
{{- end -}}

{{/* Fails where the values of a workload take what is the chart's own: (list PATH VALUES NAMES-OF-VARIABLES). */}}
{{- define "gpushare.ownedByTheChart" -}}
{{- $path := index . 0 -}}
{{- $values := index . 1 -}}
{{- if hasKey $values.podAnnotations "checksum/config" -}}
{{- fail (printf "%s.podAnnotations: checksum/config is the chart's own, by which another configuration makes new pods" $path) -}}
{{- end -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey $values.podLabels . -}}
{{- fail (printf "%s.podLabels: %s is the chart's own, by which the workload finds its pods" $path .) -}}
{{- end -}}
{{- end -}}
{{- range $values.extraEnv -}}
{{- if hasPrefix "GPUSHARE_" .name -}}
{{- fail (printf "%s.extraEnv: %s is a setting of the program; set it in %s.config" $path .name $path) -}}
{{- end -}}
{{- if has .name (index $ 2) -}}
{{- fail (printf "%s.extraEnv: %s is the chart's own" $path .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" where a profile of the scheduler may preempt, else nothing. As the program merges plugins, docs/configuration.md. */}}
{{- define "gpushare.preempts" -}}
{{- range .Values.scheduler.config.profiles | default (list (dict)) -}}
{{- $plugins := .plugins | default (dict) -}}
{{- $on := true -}}
{{- range list "multiPoint" "postFilter" -}}
{{- $point := get $plugins . | default (dict) -}}
{{- range $point.disabled -}}
{{- if has .name (list "DefaultPreemption" "*") -}}{{- $on = false -}}{{- end -}}
{{- end -}}
{{- range $point.enabled -}}
{{- if eq .name "DefaultPreemption" -}}{{- $on = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $on -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Who the programs are to the API server. */}}
{{- define "gpushare.schedulerAccount" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.names.scheduler }}
{{- end -}}
{{- define "gpushare.devicePluginAccount" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Values.names.devicePlugin }}
{{- end -}}

{{/* Names of the resources, as the scheduler's configuration says. */}}
{{- define "gpushare.gpuMem" -}}
{{ dig "resources" "gpuMem" "aliyun.com/gpu-mem" .Values.scheduler.config }}
{{- end -}}
{{- define "gpushare.gpuCount" -}}
{{ dig "resources" "gpuCount" "aliyun.com/gpu-count" .Values.scheduler.config }}
{{- end -}}
{{- define "gpushare.gpuCore" -}}
{{ dig "resources" "gpuCore" "aliyun.com/gpu-core.percentage" .Values.scheduler.config }}
{{- end -}}

{{/* JSON list of the names that pods may give in schedulerName; the first is that of the first profile. */}}
{{- define "gpushare.schedulerNames" -}}
{{- $profiles := .Values.scheduler.config.profiles | default (list (dict)) -}}
{{- $given := list -}}
{{- range $profiles -}}
{{- $given = concat (append $given (.schedulerName | default "gpushare-scheduler")) (.additionalSchedulerNames | default (list)) -}}
{{- end -}}
{{- $names := list -}}
{{- range $profiles -}}
{{- $name := .schedulerName | default "gpushare-scheduler" -}}
{{- $names = append $names $name -}}
{{- if kindIs "slice" .additionalSchedulerNames -}}
{{- $names = concat $names .additionalSchedulerNames -}}
{{- else if and (eq $name "gpushare-scheduler") (not (has "gpushare" $given)) -}}
{{- $names = append $names "gpushare" -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The port that a configuration listens on: (list CONFIGURATION DEFAULT PATH). */}}
{{- define "gpushare.port" -}}
{{- $listen := dig "listen" (index . 1) (index . 0) -}}
{{- if regexMatch "^(127[.]|localhost:|\\[::1\\])" $listen -}}
{{- fail (printf "%s.listen: %s is reached from within the pod alone; the kubelet's probes ask the pod's address" (index . 2) $listen) -}}
{{- end -}}
{{- regexFind "[0-9]+$" $listen -}}
{{- end -}}

{{/* "true" where the API server has ValidatingAdmissionPolicies, else nothing. */}}
{{- define "gpushare.hasValidatingPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{/* "true" where policies are wanted and the API server has them, else nothing. */}}
{{- define "gpushare.policies" -}}
{{- if .Values.admissionPolicies.enabled -}}{{ include "gpushare.hasValidatingPolicies" . }}{{- end -}}
{{- end -}}

{{/* JSON of the device plugin's configuration file, less its form: what is given, and what follows from it. */}}
{{- define "gpushare.devicePluginConfig" -}}
{{- $config := .Values.devicePlugin.config -}}
{{- with dig "kubelet" "devicePluginDir" "" $config -}}
{{- $config = merge (dict) $config (dict "stateDir" (print . "/gpushare")) -}}
{{- end -}}
{{- if .Values.devicePlugin.isolationMechanism -}}
{{- $key := ternary "isolationFallback" "isolation" (hasKey $config "isolation") -}}
{{- $config = merge (dict $key "/etc/gpushare/isolation.yaml") $config -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The isolation that the device plugin may use beside limits by the driver: the configured one, or the fallback. */}}
{{- define "gpushare.isolation" -}}
{{- $isolation := toString (.Values.devicePlugin.config.isolation | default "auto") -}}
{{- if eq $isolation "auto" -}}{{ .Values.devicePlugin.config.isolationFallback | default "none" }}{{- else -}}{{ $isolation }}{{- end -}}
{{- end -}}

{{/* "true" where the device plugin runs, or looks for, the control daemons of MPS, else nothing. */}}
{{- define "gpushare.mps" -}}
{{- $described := dig "preparation" "none" .Values.devicePlugin.isolationMechanism -}}
{{- if or (eq (include "gpushare.isolation" .) "mps") (eq $described "mps") -}}true{{- end -}}
{{- end -}}

{{/* The directory of the library that hami-core puts into containers, else nothing. */}}
{{- define "gpushare.hamiCoreDirectory" -}}
{{- if eq (include "gpushare.isolation" .) "hami-core" -}}
{{- dir (dig "hamiCore" "library" "" .Values.devicePlugin.config) -}}
{{- end -}}
{{- end -}}

{{/* "true" where the device plugin's container is privileged, else nothing. */}}
{{- define "gpushare.devicePluginPrivileged" -}}
{{- if or (include "gpushare.mps" .) (has .Values.devicePlugin.driverAccess (list "privileged" "driver-root")) -}}true{{- end -}}
{{- end -}}

{{/* Type of a hostPath that other programs fill. Below other directories than these, a node may be read-only. */}}
{{- define "gpushare.hostPathType" -}}
{{- if regexMatch "^/(var|run)/" . -}}DirectoryOrCreate{{- else -}}Directory{{- end -}}
{{- end -}}

{{/* Fails where the values about the plugin's own driver contradict each other. */}}
{{- define "gpushare.checkDriverAccess" -}}
{{- with .Values.devicePlugin -}}
{{- if hasKey .config "driverRoot" -}}
{{- fail "devicePlugin.config.driverRoot: set devicePlugin.driverRoot, which also mounts it" -}}
{{- end -}}
{{- if and .driverRoot (ne .driverAccess "driver-root") -}}
{{- fail (printf "devicePlugin.driverRoot: driverAccess %s does not use it; set devicePlugin.driverAccess=driver-root" .driverAccess) -}}
{{- end -}}
{{- if eq .driverAccess "driver-root" -}}
{{- if not .driverRoot -}}
{{- fail "devicePlugin.driverRoot: driverAccess driver-root needs the driver's root directory on the node, such as / or /run/nvidia/driver" -}}
{{- end -}}
{{- if .runtimeClassName -}}
{{- fail "devicePlugin.runtimeClassName: leave it out with driverAccess driver-root, which goes without the NVIDIA runtime" -}}
{{- end -}}
{{- if and (include "gpushare.mps" $) (ne (dig "mps" "daemons" "plugin" .config) "external") -}}
{{- fail "devicePlugin.driverAccess: the control program of MPS comes with the NVIDIA runtime; with driver-root, set devicePlugin.config.mps.daemons=external" -}}
{{- end -}}
{{- end -}}
{{- if and .operatorLabel (ne (toString (get .nodeSelector .operatorLabel | default "true")) "true") -}}
{{- fail (printf "devicePlugin.nodeSelector: operatorLabel selects %s=true" .operatorLabel) -}}
{{- end -}}
{{- end -}}
{{- end -}}
