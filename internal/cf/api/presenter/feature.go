// SPDX-License-Identifier: Apache-2.0

package presenter

// Feature is a feature of an app or a space in CF v3.
type Feature struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// SSHEnabled reports whether users may connect to an app with SSH, and the reason if they may not.
type SSHEnabled struct {
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason"`
}
