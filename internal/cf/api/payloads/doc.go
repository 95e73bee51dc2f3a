// SPDX-License-Identifier: Apache-2.0

// Package payloads reads what clients send. Fields that are unknown or null are left alone: clients are newer than servers.
package payloads
