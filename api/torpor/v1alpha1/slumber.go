// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SkipUntilAnnotation exempts an object from all Slumbers until the given time (RFC 3339, such as 2026-11-20T22:00:00Z). A Slumber that has
// stopped the object starts it, and no Slumber stops it before that time.
const SkipUntilAnnotation = "torpor.dev/skip-until"

// SlumberFinalizer delays the deletion of a Slumber until it has released every object that it stopped.
const SlumberFinalizer = "torpor.dev/slumber"

// ExcludeLabel excludes an object from all ClusterSlumbers, if it is "true" on the object or its namespace.
const ExcludeLabel = "torpor.dev/exclude-from-clusterslumbers"

// ClusterSlumberPrefix precedes the name of a ClusterSlumber in the records of its stops. The name of a Slumber cannot
// contain an underscore, so the annotations and status fields can hold the stops of both kinds.
const ClusterSlumberPrefix = "cluster_"

// SlumberKind is the kind of a Slumber.
func SlumberKind() schema.GroupVersionKind { return GroupVersion().WithKind("Slumber") }

// ClusterSlumberKind is the kind of a ClusterSlumber.
func ClusterSlumberKind() schema.GroupVersionKind { return GroupVersion().WithKind("ClusterSlumber") }

// Slumber stops objects of its namespace on a schedule, and starts them again. It does not set the switch of an object,
// such as spec.powerState. An object that a user has stopped therefore remains stopped when the scheduled stop ends.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=slumbers,singular=slumber,scope=Namespaced,categories=torpor
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.size() <= 63`,message=`expected a name of at most 63 characters, because the name of a field manager contains it; found a longer one; choose a shorter one`
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

// SlumberSpec defines which objects are stopped, and on what schedule.
//
// +kubebuilder:validation:XValidation:rule=`has(self.windows) && size(self.windows) > 0 || has(self.holidays) && size(self.holidays) > 0`,message=`expected a window or a holiday; found none; add one`
type SlumberSpec struct {
	// TimeZone is the IANA name of the time zone in which the schedule is evaluated, such as Europe/Berlin.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*)?$') && self != 'Local'`,message=`expected the IANA name of a time zone; found something else; set one such as Europe/Berlin or UTC`
	TimeZone string `json:"timeZone,omitempty"`
	// Windows are the recurring intervals in which the objects are stopped. Overlapping windows are merged.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []SlumberWindow `json:"windows,omitempty"`
	// Holidays are days on which the objects are stopped from midnight to midnight.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Holidays []Holiday `json:"holidays,omitempty"`
	// Waves are groups of objects. The waves are stopped in this order, and started in the reverse order.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Waves []SlumberWave `json:"waves"`
	// WaveTimeout limits how long a wave may take to stop or to start, in addition to SpreadOver. When it expires, the
	// next wave proceeds anyway.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule=`duration(self) > duration('0s') && duration(self) <= duration('24h')`,message=`expected a duration above 0s and at most 24h; found another one; choose one such as 30m`
	WaveTimeout *metav1.Duration `json:"waveTimeout,omitempty"`
	// SpreadOver spreads the stops and the starts of each wave over this duration. Each object has a fixed offset
	// within it, which depends on its UID. Unset or 0s stops and starts the objects of a wave together. A skip or a
	// user's resume takes effect immediately.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`duration(self) >= duration('0s') && duration(self) <= duration('4h')`,message=`expected a duration from 0s to 4h; found another; choose one such as 15m`
	SpreadOver *metav1.Duration `json:"spreadOver,omitempty"`
	// StartingDeadlineSeconds limits how late the manager may notice a window after its start, for example because the
	// manager was down. A window that is noticed later is skipped: the objects keep running until the next window.
	// Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// Suspend disables the schedule, and starts every object that this Slumber has stopped.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Reason explains the stop to users who find an object stopped. It is copied into the record of each stop.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// ClusterSlumber stops objects in many namespaces on a schedule, and starts them again. Its schedule and waves are
// defined as in a Slumber. If a Slumber in the namespace of an object selects the object, no ClusterSlumber stops it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=clusterslumbers,singular=clusterslumber,scope=Cluster,categories=torpor
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.size() <= 55`,message=`expected a name of at most 55 characters, because the name of an annotation contains it; found a longer one; choose a shorter one`
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.since"
// +kubebuilder:printcolumn:name="Members",type="integer",JSONPath=".status.members"
// +kubebuilder:printcolumn:name="Asleep",type="integer",JSONPath=".status.asleep"
// +kubebuilder:printcolumn:name="Next",type="string",JSONPath=".status.nextTransitions[0].to"
// +kubebuilder:printcolumn:name="At",type="string",JSONPath=".status.nextTransitions[0].at"
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterSlumber struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSlumberSpec `json:"spec"`
	// +optional
	Status SlumberStatus `json:"status,omitempty"`
}

// ClusterSlumberList is a list of ClusterSlumbers.
//
// +kubebuilder:object:root=true
type ClusterSlumberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSlumber `json:"items"`
}

// ClusterSlumberSpec defines which objects are stopped, in which namespaces, and on what schedule.
type ClusterSlumberSpec struct {
	SlumberSpec `json:",inline"`
	// NamespaceSelector selects the namespaces of the objects by their labels, including namespaces that are created later. An empty selector
	// selects all namespaces.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
}

// SlumberWindow is a recurring interval. It begins at each time that matches Sleep, and ends at the next time that
// matches Wake of the same window. If a clock change skips a local time, the time takes effect when the clocks go
// forward. If a local time occurs twice, only its first occurrence takes effect.
//
// +kubebuilder:validation:XValidation:rule=`self.sleep.trim().lowerAscii() != self.wake.trim().lowerAscii()`,message=`expected different times for sleep and wake, because a window between equal times is empty; found the same time; correct one of them`
type SlumberWindow struct {
	// Sleep is the start of the window as a cron expression with five fields: minute, hour, day of month, month and day
	// of week. Days of the week are 0 to 7, where 0 and 7 are Sunday, or names. A range may wrap around the end of the
	// week, such as FRI-MON.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule=`self.lowerAscii().matches('^ *([*?]|0*[1-5]?[0-9](-0*[1-5]?[0-9])?)(/0*[1-9][0-9]*)?(,([*?]|0*[1-5]?[0-9](-0*[1-5]?[0-9])?)(/0*[1-9][0-9]*)?)* +([*?]|0*(1?[0-9]|2[0-3])(-0*(1?[0-9]|2[0-3]))?)(/0*[1-9][0-9]*)?(,([*?]|0*(1?[0-9]|2[0-3])(-0*(1?[0-9]|2[0-3]))?)(/0*[1-9][0-9]*)?)* +([*?]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]*)?(,([*?]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]*)?)* +([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?(,([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?)* +([*?]|(0*[0-7]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-7]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?(,([*?]|(0*[0-7]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-7]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?)* *$')`,message=`expected five fields of cron with values in their ranges: minute 0-59, hour 0-23, day of month 1-31, month 1-12 and day of week 0-7; found something else; write an expression such as 0 20 * * 1-5`
	// +kubebuilder:validation:XValidation:rule=`self.trim().lastIndexOf(' ') < 0 || self.substring(0, self.trim().lastIndexOf(' ')).findAll('[0-9]+-[0-9]+').all(r, int(r.split('-')[0]) <= int(r.split('-')[1]))`,message=`expected ranges of minutes, hours, days of the month and months that do not end before they begin; found one that does; split it into two ranges, separated by a comma`
	// +kubebuilder:validation:XValidation:rule=`!self.lowerAscii().matches('^ *[^ ]+ +[^ ]+ +((30|31) +(0*2|feb)|31 +(0*[469]|11|apr|jun|sep|nov)) +[*?] *$')`,message=`expected a day of the calendar; found one that exists in no year; correct the day of month or the month`
	Sleep string `json:"sleep"`
	// Wake is the end of the window, as a cron expression like Sleep.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule=`self.lowerAscii().matches('^ *([*?]|0*[1-5]?[0-9](-0*[1-5]?[0-9])?)(/0*[1-9][0-9]*)?(,([*?]|0*[1-5]?[0-9](-0*[1-5]?[0-9])?)(/0*[1-9][0-9]*)?)* +([*?]|0*(1?[0-9]|2[0-3])(-0*(1?[0-9]|2[0-3]))?)(/0*[1-9][0-9]*)?(,([*?]|0*(1?[0-9]|2[0-3])(-0*(1?[0-9]|2[0-3]))?)(/0*[1-9][0-9]*)?)* +([*?]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]*)?(,([*?]|0*([1-9]|[12][0-9]|3[01])(-0*([1-9]|[12][0-9]|3[01]))?)(/0*[1-9][0-9]*)?)* +([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?(,([*?]|(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/0*[1-9][0-9]*)?)* +([*?]|(0*[0-7]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-7]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?(,([*?]|(0*[0-7]|sun|mon|tue|wed|thu|fri|sat)(-(0*[0-7]|sun|mon|tue|wed|thu|fri|sat))?)(/0*[1-9][0-9]*)?)* *$')`,message=`expected five fields of cron with values in their ranges: minute 0-59, hour 0-23, day of month 1-31, month 1-12 and day of week 0-7; found something else; write an expression such as 0 20 * * 1-5`
	// +kubebuilder:validation:XValidation:rule=`self.trim().lastIndexOf(' ') < 0 || self.substring(0, self.trim().lastIndexOf(' ')).findAll('[0-9]+-[0-9]+').all(r, int(r.split('-')[0]) <= int(r.split('-')[1]))`,message=`expected ranges of minutes, hours, days of the month and months that do not end before they begin; found one that does; split it into two ranges, separated by a comma`
	// +kubebuilder:validation:XValidation:rule=`!self.lowerAscii().matches('^ *[^ ]+ +[^ ]+ +((30|31) +(0*2|feb)|31 +(0*[469]|11|apr|jun|sep|nov)) +[*?] *$')`,message=`expected a day of the calendar; found one that exists in no year; correct the day of month or the month`
	Wake string `json:"wake"`
}

// Holiday is a day, or a range of days.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.last) || self.first.startsWith('--') || self.last.startsWith('--') || self.first <= self.last`,message=`expected a last day on or after the first; found an earlier one; correct one of them`
// +kubebuilder:validation:XValidation:rule=`!(self.first + (has(self.last) ? self.last : "")).matches('-(02-3[01]|(04|06|09|11)-31)')`,message=`expected a day of the calendar; found one that exists in no year; correct it`
// +kubebuilder:validation:XValidation:rule=`!has(self.last) || self.first.startsWith('--') == self.last.startsWith('--')`,message=`expected the first and the last day in the same form; found one with a year and one without; write both as 2026-12-24, or both as --12-24`
type Holiday struct {
	// Name is the name of the holiday.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`
	// First is the first day: 2026-12-24 for one year, or --12-24 for every year.
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^([0-9]{4}|-)-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	First string `json:"first"`
	// Last is the last day, in the same form as First. It defaults to First.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^([0-9]{4}|-)-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$`
	Last string `json:"last,omitempty"`
}

// SlumberWave is a group of objects that are stopped and started together.
type SlumberWave struct {
	// Name is the name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Targets select the objects of the wave.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Targets []SlumberTarget `json:"targets"`
}

// SlumberTarget selects objects of one kind.
//
// +kubebuilder:validation:XValidation:rule=`has(self.apiGroup) || self.kind in ['ClusterDeployment', 'MySQLCluster', 'CFApp', 'Deployment', 'StatefulSet', 'CronJob']`,message=`expected ClusterDeployment, MySQLCluster, CFApp, Deployment, StatefulSet or CronJob, or an apiGroup; found another kind without an apiGroup; set the apiGroup of its StopAdapter`
type SlumberTarget struct {
	// APIGroup is the API group of Kind. It is required for a kind that is stopped by a StopAdapter, and optional for ClusterDeployment,
	// MySQLCluster, CFApp, Deployment, StatefulSet and CronJob.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind is the kind of the objects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Selector selects the objects by their labels. An empty selector selects all objects of the kind.
	Selector metav1.LabelSelector `json:"selector"`
}

// SlumberState is the state of a Slumber.
type SlumberState string

const (
	// SlumberAwake means that the Slumber stops no object at present.
	SlumberAwake SlumberState = "Awake"
	// SlumberFallingAsleep means that the objects should be stopped, and not all waves are stopped yet.
	SlumberFallingAsleep SlumberState = "FallingAsleep"
	// SlumberAsleep means that all selected objects are stopped, except objects that a user skips or has resumed.
	SlumberAsleep SlumberState = "Asleep"
	// SlumberWakingUp means that the objects should run again, and not all waves are started yet.
	SlumberWakingUp SlumberState = "WakingUp"
	// SlumberInvalid means that the schedule or a selector is invalid. Stopped objects remain stopped until their stops
	// expire, and no other object is stopped. The condition Stalled contains the error.
	SlumberInvalid SlumberState = "Invalid"
)

// SlumberStatus is the observed state of a Slumber.
type SlumberStatus struct {
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State is Awake, FallingAsleep, Asleep, WakingUp or Invalid.
	// +optional
	State SlumberState `json:"state,omitempty"`
	// Since is the time at which State last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WindowStart is the start of the current window. Unset outside of windows.
	// +optional
	WindowStart *metav1.Time `json:"windowStart,omitempty"`
	// IsWindowMissed is true if the window at WindowStart is skipped because of spec.startingDeadlineSeconds.
	// +optional
	IsWindowMissed bool `json:"isWindowMissed,omitempty"`
	// Members is the number of selected objects.
	// +optional
	Members int32 `json:"members"`
	// Asleep is the number of selected objects that are stopped.
	// +optional
	Asleep int32 `json:"asleep"`
	// Waves is the state of each wave.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Waves []SlumberWaveStatus `json:"waves,omitempty"`
	// NextTransitions are the next times, at most ten, at which the objects are stopped or started.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	NextTransitions []SlumberTransition `json:"nextTransitions,omitempty"`
	// Conditions hold Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SlumberWaveStatus is the desired and the observed state of a wave.
type SlumberWaveStatus struct {
	// Name is the name of the wave.
	Name string `json:"name"`
	// ShouldSleep is true while the objects of the wave should be stopped.
	ShouldSleep bool `json:"shouldSleep"`
	// Since is the time at which ShouldSleep last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WaitsSince is the time from which spec.waveTimeout counts, instead of Since, if no manager ran between two
	// windows.
	// +optional
	WaitsSince *metav1.Time `json:"waitsSince,omitempty"`
	// Members is the number of objects in the wave.
	Members int32 `json:"members"`
	// Asleep is the number of objects in the wave that are stopped.
	Asleep int32 `json:"asleep"`
	// Skipped is the number of objects that are not stopped in this window, because of torpor.dev/skip-until or a
	// user's resume.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// WaitsFor lists some of the objects that have not reached the desired state.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// IsSettled is true once every object of the wave has reached the desired state. Later changes to the objects do
	// not delay other waves.
	// +optional
	IsSettled bool `json:"isSettled,omitempty"`
	// IsTimedOut is true if spec.waveTimeout has expired, and the next wave no longer waits for this wave.
	// +optional
	IsTimedOut bool `json:"isTimedOut,omitempty"`
}

// SlumberTransition is a scheduled change of a Slumber to Asleep or Awake.
type SlumberTransition struct {
	// At is the time of the change.
	At metav1.Time `json:"at"`
	// To is the state after the change: Asleep or Awake.
	To SlumberState `json:"to"`
}

// These are the condition types and reasons of a Slumber.
const (
	// SlumberReadyCondition is True while every selected object is in its desired state.
	SlumberReadyCondition = "Ready"
	// SlumberStalledCondition is True while a problem delays or prevents stops or starts, and a user must act.
	SlumberStalledCondition = "Stalled"

	// SlumberAsWishedReason means that every selected object is in its desired state.
	SlumberAsWishedReason = "AsWished"
	// SlumberInTransitionReason means that objects are being stopped or started.
	SlumberInTransitionReason = "InTransition"
	// SlumberInvalidReason means that the schedule or a selector is invalid, so the Slumber stops and starts no object.
	SlumberInvalidReason = "InvalidSchedule"
	// SlumberWaveTimedOutReason means that a wave did not reach its desired state within spec.waveTimeout.
	SlumberWaveTimedOutReason = "WaveTimedOut"
	// SlumberKindMissingReason means that objects of a kind cannot be stopped: the API server does not serve the kind,
	// Torpor lacks permissions for the kind, or the kind has no StopAdapter.
	SlumberKindMissingReason = "KindNotStoppable"
	// SlumberKindUnreadableReason means that the API server does not list the objects of a kind. The Slumber does not
	// change these objects.
	SlumberKindUnreadableReason = "KindUnreadable"
	// SlumberWriteFailedReason means that the status or the annotation of an object could not be written.
	SlumberWriteFailedReason = "WriteFailed"
	// SlumberAsExpectedReason means that the Slumber proceeds without a user's action.
	SlumberAsExpectedReason = "AsExpected"
)

// ScheduledStop records the stops of an object by one Slumber.
type ScheduledStop struct {
	// Slumber is the name of the Slumber. The name of a ClusterSlumber is preceded by "cluster_".
	Slumber string `json:"slumber"`
	// Stops are the last stops of the object by this Slumber, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Stops []StopRecord `json:"stops,omitempty"`
	// ExpiresAt is the time at which the newest stop ends even if the Slumber does not end it. The object then starts
	// even if no controller of Slumbers runs. Unset means that the stop does not expire.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
