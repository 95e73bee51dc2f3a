// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SavingsAnnotation holds the Savings of an object whose kind has no status field for Torpor, as JSON. It is written together with the
// fields that a stop or a start changes.
const SavingsAnnotation = "torpor.dev/savings"

// Savings holds the resources that the stops of an object have saved. The sums include ended stops only; for a stop
// in effect, the time since Since must be added.
type Savings struct {
	// Since is the time from which the current stop saves resources. Unset while the object saves none.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Machines is the number of nodes whose machines the stop keeps off.
	// +optional
	Machines int64 `json:"machines,omitempty"`
	// CPUMillis is the CPU request of the Pods that the stop has ended, in thousandths of a core.
	// +optional
	CPUMillis int64 `json:"cpuMillis,omitempty"`
	// MemoryKiB is the memory request of the Pods that the stop has ended, in KiB.
	// +optional
	MemoryKiB int64 `json:"memoryKiB,omitempty"`
	// MachineSeconds is the sum of machines times seconds.
	// +optional
	MachineSeconds int64 `json:"machineSeconds,omitempty"`
	// CPUMilliSeconds is the sum of thousandths of a core times seconds.
	// +optional
	CPUMilliSeconds int64 `json:"cpuMilliSeconds,omitempty"`
	// MemoryKiBSeconds is the sum of KiB times seconds.
	// +optional
	MemoryKiBSeconds int64 `json:"memoryKiBSeconds,omitempty"`
	// Weeks holds what was saved in each of the last weeks, the newest first.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	Weeks []WeekSavings `json:"weeks,omitempty"`
}

// WeekSavings is what the ended stops of an object have saved in one week.
type WeekSavings struct {
	// Begin is Monday, 00:00 UTC.
	Begin metav1.Time `json:"begin"`
	// MachineSeconds is the part of the sum of machines times seconds that lies in this week.
	// +optional
	MachineSeconds int64 `json:"machineSeconds,omitempty"`
	// CPUMilliSeconds is the part of the sum of thousandths of a core times seconds that lies in this week.
	// +optional
	CPUMilliSeconds int64 `json:"cpuMilliSeconds,omitempty"`
	// MemoryKiBSeconds is the part of the sum of KiB times seconds that lies in this week.
	// +optional
	MemoryKiBSeconds int64 `json:"memoryKiBSeconds,omitempty"`
}
