// SPDX-License-Identifier: Apache-2.0

// Package webhooks lets the webhooks of conditional groups come and go on a webhook server that cannot forget a path:
// each path is registered there once, as a slot, and every activation puts its own handler into the slot.
package webhooks
