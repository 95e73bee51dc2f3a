// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// annotationIgnored means that an annotation for a stop or a forced rollout has no effect, because its value is not
	// "true".
	annotationIgnored = "AnnotationIgnored"
	// podReplaced means that the next Pod of a rollout is replaced.
	podReplaced = "PodReplaced"
	// rolloutForced means that a Pod of a cluster that is not healthy is replaced, because an annotation forces the rollout.
	rolloutForced = "RolloutForced"
	// switchoverRequested means that a rollout requests a switchover before it replaces the primary's Pod.
	switchoverRequested = "SwitchoverRequested"
)
