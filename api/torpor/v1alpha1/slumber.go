// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SkipUntilAnnotation keeps the Slumbers away from an object: a time as in 2026-11-20T22:00:00Z (RFC 3339). A Slumber that has stopped the
// object lets it start, and none stops it before that time.
const SkipUntilAnnotation = "torpor.dev/skip-until"

// SlumberFinalizer keeps a Slumber until what it has stopped may start.
const SlumberFinalizer = "torpor.dev/slumber"

// SlumberKind is the kind of a Slumber.
func SlumberKind() schema.GroupVersionKind { return GroupVersion().WithKind("Slumber") }

// Slumber stops things of its namespace at certain times, and starts them again. It never writes what somebody wants of them: while it stops
// something, that has another reason to be stopped, and what somebody else has stopped stays so.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=slumbers,singular=slumber,scope=Namespaced,categories=torpor
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.size() <= 63`,message=`expected a name of 63 characters at most, because it is part of a field manager's name; found a longer one; choose a shorter one`
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.since"
// +kubebuilder:printcolumn:name="Members",type="integer",JSONPath=".status.members"
// +kubebuilder:printcolumn:name="Asleep",type="integer",JSONPath=".status.asleep"
// +kubebuilder:printcolumn:name="Next",type="string",JSONPath=".status.nextTransitions[0].to"
// +kubebuilder:printcolumn:name="At",type="string",JSONPath=".status.nextTransitions[0].at"
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Slumber struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SlumberSpec `json:"spec"`
	// +optional
	Status SlumberStatus `json:"status,omitempty"`
}

// SlumberList is a list of Slumbers.
//
// +kubebuilder:object:root=true
type SlumberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Slumber `json:"items"`
}

// SlumberSpec is when what sleeps.
type SlumberSpec struct {
	// TimeZone is the name of a time zone as in the IANA database, such as Europe/Berlin.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// Windows are when it sleeps: in any of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []SlumberWindow `json:"windows,omitempty"`
	// Holidays are days on which it sleeps from midnight to midnight.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Holidays []Holiday `json:"holidays,omitempty"`
	// Waves are what sleeps: one after another, and awake in the reverse order.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Waves []SlumberWave `json:"waves"`
	// WaveTimeout is for how long a wave is waited for before the next one goes on without it.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration('0s') && duration(self) <= duration('24h')`,message=`expected a duration above 0s and of 24h at most; found another; choose one such as 30m`
	WaveTimeout *metav1.Duration `json:"waveTimeout,omitempty"`
	// StartingDeadlineSeconds is how late a sleep may begin: if nobody stopped anything until then, because nothing ran that could, all stay
	// awake until the next window. Unset has no limit.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// Suspend wakes what sleeps and lets nothing sleep.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Reason is why, in a sentence for people who find something asleep.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// SlumberWindow is a time that comes back: from one moment to the next of the other kind. A moment that a change to summer time leaves out
// comes when the clocks have gone forward, and one that comes twice counts the first time.
type SlumberWindow struct {
	// Sleep is when it begins, as five fields of cron: minute, hour, day of the month, month and day of the week.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	Sleep string `json:"sleep"`
	// Wake is when it ends, in the same form.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	Wake string `json:"wake"`
}

// Holiday is one day or several.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.last) || self.first.startsWith('--') == self.last.startsWith('--')`,message=`expected the first and the last day in one form; found one with a year and one without; write both as 2026-12-24, or both as --12-24`
type Holiday struct {
	// Name of the holiday.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`
	// First day: 2026-12-24, or --12-24 for that day of every year.
	// +kubebuilder:validation:Pattern=`^([0-9]{4}|-)-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	First string `json:"first"`
	// Last day, in the same form; unset is the first.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{4}|-)-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	Last string `json:"last,omitempty"`
}

// SlumberWave is what sleeps and wakes together.
type SlumberWave struct {
	// Name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Targets are what belongs to it.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Targets []SlumberTarget `json:"targets"`
}

// SlumberTarget selects objects of one kind in the Slumber's namespace.
//
// +kubebuilder:validation:XValidation:rule=`has(self.apiGroup) || self.kind in ['ClusterDeployment', 'MySQLCluster', 'CFApp', 'Deployment', 'StatefulSet', 'CronJob']`,message=`expected ClusterDeployment, MySQLCluster, CFApp, Deployment, StatefulSet or CronJob, or an apiGroup; found another kind without one; add the apiGroup of its StopAdapter`
type SlumberTarget struct {
	// APIGroup of the kind: that of a StopAdapter. ClusterDeployment, MySQLCluster, CFApp, Deployment, StatefulSet and CronJob need none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the objects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Selector selects them by their labels; an empty one selects all.
	Selector metav1.LabelSelector `json:"selector"`
}

// SlumberState is what a Slumber does.
type SlumberState string

const (
	// SlumberAwake keeps nothing asleep.
	SlumberAwake SlumberState = "Awake"
	// SlumberFallingAsleep waits for what it has stopped.
	SlumberFallingAsleep SlumberState = "FallingAsleep"
	// SlumberAsleep has stopped all that it selects.
	SlumberAsleep SlumberState = "Asleep"
	// SlumberWakingUp waits for what it has started.
	SlumberWakingUp SlumberState = "WakingUp"
)

// SlumberStatus is what a Slumber does, and will do.
type SlumberStatus struct {
	// ObservedGeneration is the generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is what it does.
	// +optional
	State SlumberState `json:"state,omitempty"`
	// Since is since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WindowStart is when the window began that it was last decided about.
	// +optional
	WindowStart *metav1.Time `json:"windowStart,omitempty"`
	// IsWindowMissed says that this window was noticed too late, by spec.startingDeadlineSeconds.
	// +optional
	IsWindowMissed bool `json:"isWindowMissed,omitempty"`
	// Members is how many objects it selects, and Asleep how many of them are asleep.
	// +optional
	Members int32 `json:"members"`
	// +optional
	Asleep int32 `json:"asleep"`
	// Waves are what it wants of each wave.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Waves []SlumberWaveStatus `json:"waves,omitempty"`
	// NextTransitions are the next ten times at which it begins to sleep or to wake.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	NextTransitions []SlumberTransition `json:"nextTransitions,omitempty"`
	// Conditions are Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SlumberWaveStatus is what a Slumber wants of a wave, and what was seen of it.
type SlumberWaveStatus struct {
	// Name of the wave.
	Name string `json:"name"`
	// ShouldSleep says that it is to be asleep.
	ShouldSleep bool `json:"shouldSleep"`
	// Since is since when it should be as it should be.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WaitsSince is since when the next wave waits for it where that is later, as nobody saw its window begin.
	// +optional
	WaitsSince *metav1.Time `json:"waitsSince,omitempty"`
	// Members is how many objects it has, and Asleep how many of them are asleep.
	Members int32 `json:"members"`
	Asleep  int32 `json:"asleep"`
	// Skipped is how many are left alone, because of torpor.dev/skip-until or because somebody has resumed them in this window.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// WaitsFor names some of those that are not as they should be.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// IsSettled says that it has been as it should be since then: what happens to its members later keeps no other wave waiting.
	// +optional
	IsSettled bool `json:"isSettled,omitempty"`
	// IsTimedOut says that the next wave goes on without it.
	// +optional
	IsTimedOut bool `json:"isTimedOut,omitempty"`
}

// SlumberTransition is when a Slumber begins to sleep or to wake.
type SlumberTransition struct {
	At metav1.Time `json:"at"`
	// To is Asleep or Awake.
	To SlumberState `json:"to"`
}

// Condition types and reasons of a Slumber.
const (
	// SlumberReadyCondition is True while everything is as the Slumber wants it.
	SlumberReadyCondition = "Ready"
	// SlumberStalledCondition is True while something needs somebody.
	SlumberStalledCondition = "Stalled"

	// SlumberAsWishedReason says that everything is as the Slumber wants it.
	SlumberAsWishedReason = "AsWished"
	// SlumberInTransitionReason says that some wave is on its way.
	SlumberInTransitionReason = "InTransition"
	// SlumberInvalidReason says that the spec makes no sense. What slept sleeps on, and nothing else is stopped.
	SlumberInvalidReason = "InvalidSchedule"
	// SlumberWaveTimedOutReason says that a wave was not as it should be in time.
	SlumberWaveTimedOutReason = "WaveTimedOut"
	// SlumberSchemaLacksFieldReason says that objects cannot be stopped, because their schema drops what the Slumber writes.
	SlumberSchemaLacksFieldReason = "MembersLackField"
	// SlumberKindMissingReason says that nothing is stopped of some kinds: the API server does not serve them, Torpor may not write them, or no
	// StopAdapter is about them.
	SlumberKindMissingReason = "KindNotStoppable"
	// SlumberKindUnreadableReason says that the API server does not list the objects of some kinds. They stay as they are.
	SlumberKindUnreadableReason = "KindUnreadable"
	// SlumberWriteFailedReason says that the status of members could not be written.
	SlumberWriteFailedReason = "WriteFailed"
	// SlumberAsExpectedReason says that nothing needs anybody.
	SlumberAsExpectedReason = "AsExpected"
)

// ScheduledStop is what one Slumber wants of an object.
type ScheduledStop struct {
	// Slumber is its name.
	Slumber string `json:"slumber"`
	// Stops are the last times that it stopped the object, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Stops []StopRecord `json:"stops,omitempty"`
	// ExpiresAt is when the newest of them holds no longer, whether or not the Slumber has ended it: what is asleep wakes also where nobody
	// cares for Slumbers any more. Unset while there is no such time.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
