// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"fmt"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// maxMessage is how much of a termination message the kubelet keeps, in bytes.
const maxMessage = 4096

// FormatResult returns the termination message of a container that backed up. What does not fit is left out, with a
// warning; the record in the bucket has all of it.
func FormatResult(status mocov1beta2.BackupStatus) (string, error) {
	for _, shrink := range []func(){
		func() {},
		func() { status.UUIDSet = nil },
		func() {
			status.GTIDSet = ""
			status.Warnings = []string{fmt.Sprintf("the GTID set and %d warnings are too long to be shown; they are in the bucket", len(status.Warnings))}
		},
	} {
		shrink()
		text, err := json.Marshal(status)
		if err != nil {
			return "", fmt.Errorf("encode the result: %w", err)
		}
		if len(text) <= maxMessage {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("expected a result of at most %d bytes, found more without its GTID set", maxMessage)
}

// ParseResult reads what FormatResult wrote.
func ParseResult(text string) (mocov1beta2.BackupStatus, error) {
	var status mocov1beta2.BackupStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return status, fmt.Errorf("expected the result of a backup as JSON, found %d bytes that are none: %w", len(text), err)
	}
	if status.Time == nil {
		return status, fmt.Errorf("expected the result of a backup, found JSON without its time")
	}
	return status, nil
}
