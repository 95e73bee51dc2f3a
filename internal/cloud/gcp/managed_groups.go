// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
)

// A managed instance group recreates each stopped member. The group's name is in the metadata of its members, and
// other tools use the same key:
// https://cloud.google.com/compute/docs/instance-groups/getting-info-about-migs#checking_if_a_vm_instance_is_part_of_a_mig

const (
	// creatorKey is the metadata key with the name of the group. groupPath precedes the name in its value.
	creatorKey = "created-by"
	groupPath  = "/instanceGroupManagers/"
	// maxMetadataReads limits the instances whose metadata one listing reads, and parallelMetadataReads limits
	// concurrent reads. The metadata of an instance may have 512 KB.
	maxMetadataReads      = 200
	parallelMetadataReads = 4
	metadataRead          = "instances.get"
)

// instanceMetadata is the metadata of an instance. A listing omits the values.
type instanceMetadata struct {
	// Fingerprint changes with each change to the metadata.
	Fingerprint string         `json:"fingerprint"`
	Items       []metadataItem `json:"items"`
}

type metadataItem struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// namesCreator reports whether the metadata may contain a group.
func (m *instanceMetadata) namesCreator() bool {
	return slices.ContainsFunc(m.Items, func(item metadataItem) bool { return item.Key == creatorKey })
}

// managedGroup returns the name of the group in the metadata, or "". The metadata must contain values.
func (m *instanceMetadata) managedGroup() string {
	for _, item := range m.Items {
		if item.Key == creatorKey {
			_, name, _ := strings.Cut(item.Value, groupPath)
			return strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], "")
		}
	}
	return ""
}

// groupClaims maps the IDs of instances whose metadata may contain a group to the fingerprints of the metadata.
type groupClaims map[string]string

// knownGroup is a cached group. The metadata that contained it has this fingerprint.
type knownGroup struct{ fingerprint, group string }

// nameGroups sets the groups of machines. The metadata of each instance is read again only after it has changed. An
// instance that cannot be read, or is deferred to the next listing, counts as a member, because a stop could destroy
// it.
func (c *projectAccount) nameGroups(ctx context.Context, found map[string][]actuator.Machine, claims groupClaims) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallelMetadataReads)
	reads := 0
	for _, infraID := range slices.Sorted(maps.Keys(found)) {
		for i := range found[infraID] {
			machine := &found[infraID][i]
			fingerprint, isClaimed := claims[machine.ID]
			if !isClaimed {
				continue
			}
			if group, isKnown := c.findGroup(machine.ID, fingerprint); isKnown {
				machine.Group = group
				continue
			}
			// The name of a member consists of its group's name, a hyphen and a suffix.
			machine.Group = machine.Name[:max(strings.LastIndexByte(machine.Name, '-'), 0)]
			if reads++; reads <= maxMetadataReads {
				work.Go(func() error { return c.readGroup(ctx, machine) })
			}
		}
	}
	return work.Wait()
}

func (c *projectAccount) findGroup(id, fingerprint string) (string, bool) {
	kept, _ := c.groups.Get(id)
	known, ok := kept.(knownGroup)
	return known.group, ok && fingerprint != "" && known.fingerprint == fingerprint
}

// readGroup reads the group of a machine from the metadata of its instance.
func (c *projectAccount) readGroup(ctx context.Context, machine *actuator.Machine) error {
	name, ok := parseMachineName(machine.ID)
	if !ok {
		return nil
	}
	var vm computeInstance
	// A partial response cannot be restricted to one key.
	query := url.Values{"fields": {"metadata(fingerprint,items(key,value))"}}
	err := c.call(ctx, computeRequest{operation: metadataRead, method: http.MethodGet, path: name.path(), query: query}, &vm)
	switch class := actuator.ClassOf(err); {
	case err == nil:
		machine.Group = vm.Metadata.managedGroup()
		c.groups.Add(machine.ID, knownGroup{vm.Metadata.Fingerprint, machine.Group})
		return nil
	case class == actuator.Throttled, class == actuator.CredentialsInvalid:
		return err // The error concerns the whole account.
	default:
		return nil
	}
}
