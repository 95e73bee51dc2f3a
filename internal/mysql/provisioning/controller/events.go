// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// annotationIgnored means that an annotation that should stop something has another value than "true", and stops nothing.
	annotationIgnored = "AnnotationIgnored"
	// podReplaced means that the next Pod of a rollout is replaced.
	podReplaced = "PodReplaced"
	// switchoverRequested means that a rollout asks for another primary before it replaces the primary's Pod.
	switchoverRequested = "SwitchoverRequested"
)
