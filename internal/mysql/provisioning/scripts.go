// SPDX-License-Identifier: Apache-2.0

package provisioning

import _ "embed" // for the scripts

// initScript makes the data directory of a new instance.
//
//go:embed moco-init.sh
var initScript string

// serverScript runs the server and starts it again after a CLONE.
//
//go:embed moco-mysqld.sh
var serverScript string
