// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"slices"
	"strings"
)

// Procedures in use, with their numbers in libvirt's remote_protocol.x.
const (
	procConnectOpen     = 1
	procDomainCreate    = 9
	procDomainDestroy   = 12
	procDomainLookup    = 24 // The lookup is by UUID.
	procDomainShutdown  = 33
	procGetHostname     = 59
	procAuthList        = 66
	procAuthPolkit      = 70
	procIsPersistent    = 151
	procDomainGetState  = 212
	procGetMetadata     = 265
	procDomainWakeUp    = 267
	procListAllDomains  = 273
	authNone            = 0
	authPolkit          = 2
	metadataElement     = 2
	maxDomains          = 10_000
	maxAuthentications  = 20
	maxNameBytes        = 4 << 10
	maxMetadataBytes    = 64 << 10
	metadataNamespace   = "urn:torpor:cluster"
	inactiveDomainID    = 0xffff_ffff // libvirt's id -1 as an unsigned number.
	uuidBytes           = 16
	uuidTextBytes       = 36
	lengthOfHostnames   = 255
	needAnswer          = 1
	noFlags             = 0
	ofDefinition        = 2
	listActiveAndOthers = noFlags
)

// domain is a virtual machine in the protocol. The daemon identifies it by its UUID.
type domain struct {
	name string
	uuid [uuidBytes]byte
	// id changes at each start.
	id uint32
}

// String returns the UUID in its usual form.
func (d domain) String() string {
	t := hex.EncodeToString(d.uuid[:])
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}

func parseUUID(text string) ([uuidBytes]byte, bool) {
	var uuid [uuidBytes]byte
	digits, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(digits) != uuidBytes || len(text) != uuidTextBytes {
		return uuid, false
	}
	copy(uuid[:], digits)
	return uuid, true
}

// domainState is the state of a domain and its reason, as libvirt's numbers (virDomainState and its reasons).
type domainState struct{ state, reason uint32 }

const (
	stateRunning      = 1
	stateBlocked      = 2
	statePaused       = 3
	stateShuttingDown = 4
	stateShutOff      = 5
	stateCrashed      = 6
	statePMSuspended  = 7

	pausedMigrating    = 2
	pausedSaving       = 3
	pausedDumping      = 4
	pausedShuttingDown = 8
	pausedForSnapshot  = 9
	pausedStartingUp   = 11
	pausedPostcopy     = 12
)

// isPausedBriefly reports whether the daemon itself has paused a guest temporarily and will resume it. A pause for
// any other reason, such as by a user or because of a failed disk, lasts until the guest is resumed explicitly:
// https://libvirt.org/html/libvirt-libvirt-domain.html#virDomainPausedReason
func (s domainState) isPausedBriefly() bool {
	reasons := []uint32{pausedMigrating, pausedSaving, pausedDumping, pausedForSnapshot, pausedStartingUp, pausedPostcopy}
	return s.state == statePaused && slices.Contains(reasons, s.reason)
}

// open authenticates, and opens the driver. A daemon requires the authentication call even if it does not require
// authentication.
func (c *connection) open(ctx context.Context, driver string) error {
	r, err := c.call(ctx, procAuthList, xdrWriter{})
	if err != nil {
		return err
	}
	count := r.readUint()
	if count > maxAuthentications {
		return errNotLibvirt
	}
	ways := map[uint32]bool{}
	for range count {
		ways[r.readUint()] = true
	}
	switch {
	case r.err != nil:
		return r.err
	case count == 0, ways[authNone]:
	case ways[authPolkit]:
		if _, err := c.call(ctx, procAuthPolkit, xdrWriter{}); err != nil {
			return err
		}
	default:
		return errAuthenticationUnknown
	}
	var name xdrWriter
	name.writeOptional(driver)
	name.writeUint(noFlags)
	_, err = c.call(ctx, procConnectOpen, name)
	return err
}

// errAuthenticationUnknown means that a daemon requires another authentication than polkit, for example a password.
var errAuthenticationUnknown = errors.New("the daemon requires a password")

func (c *connection) readHostname(ctx context.Context) (string, error) {
	r, err := c.call(ctx, procGetHostname, xdrWriter{})
	if err != nil {
		return "", err
	}
	name := r.readString(lengthOfHostnames)
	return name, r.err
}

// listDomains returns all domains of a host.
func (c *connection) listDomains(ctx context.Context) ([]domain, error) {
	var arguments xdrWriter
	arguments.writeUint(needAnswer)
	arguments.writeUint(listActiveAndOthers)
	r, err := c.call(ctx, procListAllDomains, arguments)
	if err != nil {
		return nil, err
	}
	count := r.readUint()
	if count > maxDomains {
		return nil, errListTooLong
	}
	var all []domain
	for range count {
		if r.err != nil {
			break
		}
		all = append(all, r.readDomain())
	}
	return all, r.err
}

// findDomain returns the domain with this UUID, including its name and its current id.
func (c *connection) findDomain(ctx context.Context, id string) (domain, error) {
	uuid, ok := parseUUID(id)
	if !ok {
		return domain{}, errNoUUID()
	}
	r, err := c.call(ctx, procDomainLookup, xdrWriter{content: uuid[:]})
	if err != nil {
		return domain{}, err
	}
	found := r.readDomain()
	if r.err == nil && found.uuid != uuid {
		return domain{}, errNotLibvirt
	}
	return found, r.err
}

// errNoUUID returns the error of a missing domain, for an ID that no domain can have.
func errNoUUID() error { return &daemonError{code: codeNoDomain, message: "its id is not a UUID"} }

func (c *connection) readState(ctx context.Context, d domain) (domainState, error) {
	r, err := c.callFor(ctx, procDomainGetState, d, noFlags)
	if err != nil {
		return domainState{}, err
	}
	found := domainState{r.readUint(), r.readUint()}
	return found, r.err
}

func (c *connection) isPersistent(ctx context.Context, d domain) (bool, error) {
	r, err := c.callFor(ctx, procIsPersistent, d)
	if err != nil {
		return false, err
	}
	persistent := r.readUint()
	return persistent == 1, r.err
}

// readClaim returns the infraID in a domain's metadata, and whether the domain has Torpor's metadata. The metadata of
// the definition takes precedence, because that of the running guest is lost when the guest stops. For a domain
// without a definition, the metadata of the running guest is read.
func (c *connection) readClaim(ctx context.Context, d domain) (infraID string, isClaimed bool, err error) {
	text, err := c.readMetadata(ctx, d, ofDefinition)
	if hasCode(err, codeOperationInvalid) {
		text, err = c.readMetadata(ctx, d, noFlags)
	}
	if hasCode(err, codeNoMetadata) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	var element struct {
		InfraID string `xml:"infraID,attr"`
	}
	_ = xml.Unmarshal([]byte(text), &element) // A domain with malformed metadata belongs to no cluster.
	return element.InfraID, true, nil
}

func (c *connection) readMetadata(ctx context.Context, d domain, flags uint32) (string, error) {
	var arguments xdrWriter
	arguments.writeDomain(d)
	arguments.writeUint(metadataElement)
	arguments.writeOptional(metadataNamespace)
	arguments.writeUint(flags)
	r, err := c.call(ctx, procGetMetadata, arguments)
	if err != nil {
		return "", err
	}
	text := r.readString(maxMetadataBytes)
	return text, r.err
}

// shutDown requests the guest to turn off, through its agent if it has one and otherwise with the ACPI power button.
// The response arrives before the guest reacts.
func (c *connection) shutDown(ctx context.Context, d domain) error {
	_, err := c.callFor(ctx, procDomainShutdown, d)
	return err
}

func (c *connection) create(ctx context.Context, d domain) error {
	_, err := c.callFor(ctx, procDomainCreate, d)
	return err
}

func (c *connection) destroy(ctx context.Context, d domain) error {
	_, err := c.callFor(ctx, procDomainDestroy, d)
	return err
}

func (c *connection) wakeUp(ctx context.Context, d domain) error {
	_, err := c.callFor(ctx, procDomainWakeUp, d, noFlags)
	return err
}

// callFor calls a procedure with a domain and, optionally, numbers as its arguments.
func (c *connection) callFor(ctx context.Context, procedure uint32, d domain, numbers ...uint32) (*xdrReader, error) {
	var arguments xdrWriter
	arguments.writeDomain(d)
	for _, n := range numbers {
		arguments.writeUint(n)
	}
	return c.call(ctx, procedure, arguments)
}
