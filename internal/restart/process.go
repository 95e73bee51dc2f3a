// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"crypto/sha256"
	"fmt"
)

// ProcessGUID is the name of the CFProcess of a type, so that whoever makes it first makes the same one.
func ProcessGUID(appGUID, processType string) string {
	sum := sha256.Sum256([]byte(appGUID + "/" + processType))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
