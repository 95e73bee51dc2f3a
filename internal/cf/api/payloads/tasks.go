// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"cmp"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	maxTaskCommand = 4096
	maxTaskName    = 255
)

// TaskCreate is the body of a request that creates a task. A template process provides the command and the sizes that
// the body omits.
type TaskCreate struct {
	Name     string    `json:"name"`
	Command  string    `json:"command"`
	MemoryMB int64     `json:"memory_in_mb"`
	DiskMB   int64     `json:"disk_in_mb"`
	Metadata *Metadata `json:"metadata"`
	Template struct {
		Process struct {
			GUID string `json:"guid"`
		} `json:"process"`
	} `json:"template"`
}

// Validate rejects a task without a command, or with values above the limits.
func (t TaskCreate) Validate() error {
	if t.Command == "" || len(t.Command) > maxTaskCommand || len(t.Name) > maxTaskName {
		return apierrors.NewUnprocessableEntity("expected a command of 1 to 4096 characters and a name of at most 255; found no command, or a longer text; correct the request")
	}
	return cmp.Or(checkTaskSize("memory_in_mb", t.MemoryMB), checkTaskSize("disk_in_mb", t.DiskMB), t.Metadata.Validate())
}

func checkTaskSize(what string, megabytes int64) error {
	if megabytes < 0 {
		return apierrors.NewUnprocessableEntity("expected a positive number for " + what + "; choose another number")
	}
	return checkSize(what, megabytes, korifiv1alpha1.MaxMegabytes, "M")
}
