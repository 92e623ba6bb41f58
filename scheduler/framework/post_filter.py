"""Extension point for unschedulable pods. A separate module, because only this extension point receives a `WhatIf`."""

from abc import abstractmethod
from collections.abc import Generator

from scheduler.framework.plugin import Plugin
from scheduler.framework.preemption import PostFilterResult
from scheduler.framework.profile import Profile
from scheduler.framework.what_if import WhatIf
from scheduler.pods.pod import Pod


class PostFilterPlugin(Plugin):
    """Helps an unschedulable pod."""

    @abstractmethod
    def post_filter(self, pod: Pod, what_if: WhatIf) -> Generator[None, None, PostFilterResult]:
        """Return the pods to evict, or why preemption does not help.

        Other work runs at each `yield`, and the cluster may change. A step takes milliseconds.
        """


def post_filters(profile: Profile) -> tuple[PostFilterPlugin, ...]:
    """Return the profile's PostFilter plugins, in the configured order."""
    return tuple(plugin for plugin in profile.post_filter if isinstance(plugin, PostFilterPlugin))
