// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"net/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errorclass"
)

// errorTable classifies answers by their status, because engines have no error codes. They use 500 for one container,
// too, such as one whose mount or image is missing:
// https://docs.docker.com/reference/api/engine/version/v1.51/#tag/Container/operation/ContainerStart
func errorTable() errorclass.Table {
	return append(errorclass.Table{
		// Other programs may release the port, the memory or the disk space.
		{
			Phrases:    []string{portAllocated, addressInUse, "no space left on device", "cannot allocate memory"},
			Operations: []string{start}, Class: actuator.NoCapacity,
		},
		{
			Lowest: http.StatusInternalServerError, Highest: http.StatusInternalServerError, Operations: []string{start, stop},
			Class: actuator.Other,
		},
	}, errorclass.ByStatus()...)
}

// The phrases of an engine that cannot give a container its port.
const (
	portAllocated = "port is already allocated"
	addressInUse  = "address already in use"
)
