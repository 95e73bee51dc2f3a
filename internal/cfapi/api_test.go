// SPDX-License-Identifier: Apache-2.0

package cfapi

import "testing"

func TestAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("conversations of the real client", w.testConversations)
}
