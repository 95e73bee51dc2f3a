// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SavingsAnnotation holds the Savings of an object as JSON, if the kind has no status field for Torpor. It is written
// together with the fields that a stop or a start changes.
const SavingsAnnotation = "torpor.dev/savings"

// Savings holds the resources that the stops of an object have saved. The sums include ended stops only; for a stop in
// effect, Machines, CPUMillis and MemoryKiB must be multiplied by the time since Since, and added.
type Savings struct {
	// Since is the time from which the current stop saves resources. Unset while no stop saves resources.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Machines is the number of nodes whose machines the current stop keeps off.
	// +optional
	Machines int64 `json:"machines,omitempty"`
	// CPUMillis is the CPU request of the Pods that the current stop has ended, in thousandths of a core.
	// +optional
	CPUMillis int64 `json:"cpuMillis,omitempty"`
	// MemoryKiB is the memory request of the Pods that the current stop has ended, in KiB.
	// +optional
	MemoryKiB int64 `json:"memoryKiB,omitempty"`
	// MachineSeconds is the sum of machines multiplied by seconds.
	// +optional
	MachineSeconds int64 `json:"machineSeconds,omitempty"`
	// CPUMilliSeconds is the sum of thousandths of a core multiplied by seconds.
	// +optional
	CPUMilliSeconds int64 `json:"cpuMilliSeconds,omitempty"`
	// MemoryKiBSeconds is the sum of KiB multiplied by seconds.
	// +optional
	MemoryKiBSeconds int64 `json:"memoryKiBSeconds,omitempty"`
	// Weeks holds the savings of ended stops by week, for the last five weeks with savings, newest first.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	Weeks []WeekSavings `json:"weeks,omitempty"`
}

// WeekSavings holds the resources that the ended stops of an object have saved in one week.
type WeekSavings struct {
	// Begin is the start of the week: Monday, 00:00 UTC.
	Begin metav1.Time `json:"begin"`
	// MachineSeconds is the part of the Savings' machineSeconds that falls into this week.
	// +optional
	MachineSeconds int64 `json:"machineSeconds,omitempty"`
	// CPUMilliSeconds is the part of the Savings' cpuMilliSeconds that falls into this week.
	// +optional
	CPUMilliSeconds int64 `json:"cpuMilliSeconds,omitempty"`
	// MemoryKiBSeconds is the part of the Savings' memoryKiBSeconds that falls into this week.
	// +optional
	MemoryKiBSeconds int64 `json:"memoryKiBSeconds,omitempty"`
}
