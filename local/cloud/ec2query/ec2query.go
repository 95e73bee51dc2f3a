// SPDX-License-Identifier: Apache-2.0

// Package ec2query implements the protocol of the EC2 Query API: it reads form-encoded requests and writes responses
// and errors in EC2's XML.
package ec2query

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one decoded call.
type Request struct {
	// Action is the name of the call, such as StopInstances.
	Action string
	form   url.Values
}

// Tag is a tag in a request.
type Tag struct {
	Key, Value string
	// HasValue distinguishes an empty value from an absent one.
	HasValue bool
}

// Filter is one Filter.N of a request; it matches if any of its values matches.
type Filter struct {
	Name   string
	Values []string
}

// TagSpecification holds the tags for one type of resource that a call creates.
type TagSpecification struct {
	ResourceType string
	Tags         []Tag
}

// ReadRequest decodes a GET or POST. The error is an *Error.
func ReadRequest(w http.ResponseWriter, r *http.Request) (Request, error) {
	const largestBody = 1 << 20
	r.Body = http.MaxBytesReader(w, r.Body, largestBody)
	if err := r.ParseForm(); err != nil {
		return Request{}, NewErrorf(InvalidParameterValue, "The request cannot be read as a form of at most %d bytes: %v", largestBody, err)
	}
	return Request{Action: r.Form.Get("Action"), form: r.Form}, nil
}

// StringParameter returns the value of a parameter, or the empty string.
func (q Request) StringParameter(name string) string { return q.form.Get(name) }

// ParseNumber returns the whole number in a parameter, and whether the parameter exists. The error is an *Error.
func (q Request) ParseNumber(name string) (int, bool, error) {
	text := q.StringParameter(name)
	if text == "" {
		return 0, false, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, false, NewErrorf(InvalidParameterValue, "Value (%s) for parameter %s is invalid. Expecting a whole number.", text, name)
	}
	return number, true, nil
}

// ParseFlag returns the boolean in a parameter, or false if the parameter is missing. The error is an *Error.
func (q Request) ParseFlag(name string) (bool, error) {
	switch text := q.StringParameter(name); strings.ToLower(text) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, NewErrorf(InvalidParameterValue, "Value (%s) for parameter %s is invalid. Expecting true or false.", text, name)
	}
}

// ListValues returns the values of name.1, name.2 … in the order of their numbers, without duplicates.
func (q Request) ListValues(name string) []string {
	var values []string
	seen := map[string]bool{}
	for _, item := range q.itemNames(name) {
		if value := q.StringParameter(item); !seen[value] {
			seen[value] = true
			values = append(values, value)
		}
	}
	return values
}

// ListTags returns the tags in prefix.1.Key, prefix.1.Value ….
func (q Request) ListTags(prefix string) []Tag {
	var tags []Tag
	for _, item := range q.itemNames(prefix) {
		tags = append(tags, Tag{Key: q.StringParameter(item + ".Key"), Value: q.StringParameter(item + ".Value"), HasValue: q.form.Has(item + ".Value")})
	}
	return tags
}

// ListTagSpecifications returns the specifications in TagSpecification.1 ….
func (q Request) ListTagSpecifications() []TagSpecification {
	var specifications []TagSpecification
	for _, item := range q.itemNames("TagSpecification") {
		specifications = append(specifications, TagSpecification{ResourceType: q.StringParameter(item + ".ResourceType"), Tags: q.ListTags(item + ".Tag")})
	}
	return specifications
}

// ParseFilters returns the filters in Filter.1 …. The error is an *Error.
func (q Request) ParseFilters() ([]Filter, error) {
	var filters []Filter
	for _, item := range q.itemNames("Filter") {
		filter := Filter{Name: q.StringParameter(item + ".Name"), Values: q.ListValues(item + ".Value")}
		if filter.Name == "" || len(filter.Values) == 0 {
			return nil, NewErrorf(MissingParameter, "The request must contain the parameters %s.Name and %s.Value.1", item, item)
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

// HashParameters returns a hash of all parameters except the named ones.
func (q Request) HashParameters(except ...string) string {
	form := url.Values{}
	for name, values := range q.form {
		if !slices.Contains(except, name) {
			form[name] = values
		}
	}
	sum := sha256.Sum256([]byte(form.Encode()))
	return hex.EncodeToString(sum[:8])
}

// itemNames returns "prefix.N" for each number N that occurs, in numeric order.
func (q Request) itemNames(prefix string) []string {
	var numbers []int
	for name := range q.form {
		rest, ok := strings.CutPrefix(name, prefix+".")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ".")
		if number, err := strconv.Atoi(digits); err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	var items []string
	for _, number := range slices.Compact(numbers) {
		items = append(items, prefix+"."+strconv.Itoa(number))
	}
	return items
}

// Set is EC2's list: <item> elements inside a named element, which is written even if the list is empty.
type Set[T any] struct {
	Items []T `xml:"item"`
}

// NewSet returns the set of the items.
func NewSet[T any](items []T) Set[T] { return Set[T]{Items: items} }

// Reservation contains the instances of one RunInstances call.
type Reservation struct {
	ReservationID string        `xml:"reservationId"`
	OwnerID       string        `xml:"ownerId"`
	Groups        Set[struct{}] `xml:"groupSet"`
	Instances     Set[Instance] `xml:"instancesSet"`
}

// Instance is one machine; its fields have the same order as in EC2.
type Instance struct {
	InstanceID         string           `xml:"instanceId"`
	ImageID            string           `xml:"imageId"`
	State              InstanceState    `xml:"instanceState"`
	PrivateDNSName     string           `xml:"privateDnsName"`
	DNSName            string           `xml:"dnsName"`
	TransitionReason   string           `xml:"reason"`
	LaunchIndex        int              `xml:"amiLaunchIndex"`
	InstanceType       string           `xml:"instanceType"`
	LaunchTime         Timestamp        `xml:"launchTime"`
	Placement          Placement        `xml:"placement"`
	PrivateIPAddress   string           `xml:"privateIpAddress,omitempty"`
	StateReason        *StateReason     `xml:"stateReason"`
	Architecture       string           `xml:"architecture"`
	RootDeviceType     string           `xml:"rootDeviceType"`
	VirtualizationType string           `xml:"virtualizationType"`
	InstanceLifecycle  string           `xml:"instanceLifecycle,omitempty"`
	ClientToken        string           `xml:"clientToken"`
	Tags               Set[ResourceTag] `xml:"tagSet"`
	Hypervisor         string           `xml:"hypervisor"`

	// CapacityReservationID is the capacity reservation in which the instance runs, and CapacityReservation the one that
	// it requires.
	CapacityReservationID string                            `xml:"capacityReservationId,omitempty"`
	CapacityReservation   *CapacityReservationSpecification `xml:"capacityReservationSpecification"`
}

// CapacityReservationSpecification identifies the capacity reservation that an instance requires.
type CapacityReservationSpecification struct {
	TargetID string `xml:"capacityReservationTarget>capacityReservationId"`
}

// InstanceState is a power state: its number and its name.
type InstanceState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

// StateReason is the reason for the last change of the state.
type StateReason struct {
	Code    string `xml:"code"    json:"code"`
	Message string `xml:"message" json:"message"`
}

// Placement is the location of an instance.
type Placement struct {
	AvailabilityZone string `xml:"availabilityZone"`
	GroupName        string `xml:"groupName"`
	Tenancy          string `xml:"tenancy"`
}

// ResourceTag is a tag of an instance.
type ResourceTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// StateChange is the state change of one instance in the response to a start, a stop or a termination.
type StateChange struct {
	InstanceID string        `xml:"instanceId"`
	Current    InstanceState `xml:"currentState"`
	Previous   InstanceState `xml:"previousState"`
}

// TagDescription is one tag with the instance it belongs to.
type TagDescription struct {
	ResourceID   string `xml:"resourceId"`
	ResourceType string `xml:"resourceType"`
	Key          string `xml:"key"`
	Value        string `xml:"value"`
}

// RunInstancesAnswer is the response to RunInstances.
type RunInstancesAnswer struct {
	answerHead
	Reservation
}

// DescribeInstancesAnswer is the response to DescribeInstances.
type DescribeInstancesAnswer struct {
	answerHead
	Reservations Set[Reservation] `xml:"reservationSet"`
	NextToken    string           `xml:"nextToken,omitempty"`
}

// StateChangesAnswer is the response to StartInstances, StopInstances and TerminateInstances.
type StateChangesAnswer struct {
	answerHead
	Instances Set[StateChange] `xml:"instancesSet"`
}

// DescribeTagsAnswer is the response to DescribeTags.
type DescribeTagsAnswer struct {
	answerHead
	Tags Set[TagDescription] `xml:"tagSet"`
}

// ReturnAnswer is a response that reports only success.
type ReturnAnswer struct {
	answerHead
	Return bool `xml:"return"`
}

// Timestamp is a time in UTC with milliseconds.
type Timestamp time.Time

// MarshalText writes the time as EC2 does.
func (t Timestamp) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format("2006-01-02T15:04:05.000Z")), nil
}

// Answer is the response to one call.
type Answer interface {
	setRequestID(id string)
}

type answerHead struct {
	RequestID string `xml:"requestId"`
}

func (h *answerHead) setRequestID(id string) { h.RequestID = id }

// WriteAnswer answers a call with <ActionResponse>.
func WriteAnswer(w http.ResponseWriter, action string, body Answer) {
	id := newRequestID()
	body.setRequestID(id)
	writeXML(w, http.StatusOK, id, body, xml.StartElement{
		Name: xml.Name{Local: action + "Response"},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "http://ec2.amazonaws.com/doc/2016-11-15/"}},
	})
}

func writeXML(w http.ResponseWriter, status int, requestID string, answer any, root xml.StartElement) {
	var text bytes.Buffer
	text.WriteString(xml.Header)
	if err := xml.NewEncoder(&text).EncodeElement(answer, root); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(status)
	// A client that has disconnected needs no response.
	_, _ = w.Write(text.Bytes())
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// The codes of EC2's errors and state reasons that the cloud uses.
const (
	AuthFailure                         = "AuthFailure"
	DryRunOperation                     = "DryRunOperation"
	FilterLimitExceeded                 = "FilterLimitExceeded"
	IdempotentParameterMismatch         = "IdempotentParameterMismatch"
	IncorrectInstanceState              = "IncorrectInstanceState"
	InsufficientFreeAddressesInSubnet   = "InsufficientFreeAddressesInSubnet"
	InsufficientInstanceCapacity        = "InsufficientInstanceCapacity"
	InternalError                       = "InternalError"
	InvalidAction                       = "InvalidAction"
	InvalidID                           = "InvalidID"
	InvalidInstanceIDMalformed          = "InvalidInstanceID.Malformed"
	InvalidInstanceIDNotFound           = "InvalidInstanceID.NotFound"
	InvalidParameterCombination         = "InvalidParameterCombination"
	InvalidParameterValue               = "InvalidParameterValue"
	MissingParameter                    = "MissingParameter"
	OperationNotPermitted               = "OperationNotPermitted"
	RequestLimitExceeded                = "RequestLimitExceeded"
	ReservationCapacityExceeded         = "ReservationCapacityExceeded"
	TagLimitExceeded                    = "TagLimitExceeded"
	UnauthorizedOperation               = "UnauthorizedOperation"
	Unavailable                         = "Unavailable"
	UnsupportedHibernationConfiguration = "UnsupportedHibernationConfiguration"
	UnsupportedOperation                = "UnsupportedOperation"
	ServerInsufficientInstanceCapacity  = "Server.InsufficientInstanceCapacity"
	ClientInstanceInitiatedShutdown     = "Client.InstanceInitiatedShutdown"
	ClientUserInitiatedShutdown         = "Client.UserInitiatedShutdown"
	ClientInternalError                 = "Client.InternalError"
)

// Error is an error response of EC2.
type Error struct {
	Code, Message string
	// Status is the HTTP status; 0 means the usual one for the code.
	Status int
}

// NewErrorf returns an *Error with the usual status of its code.
func NewErrorf(code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func (e *Error) httpStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	switch e.Code {
	case AuthFailure, UnauthorizedOperation:
		return http.StatusForbidden
	case DryRunOperation:
		return http.StatusPreconditionFailed
	case InternalError, InsufficientInstanceCapacity, ReservationCapacityExceeded:
		return http.StatusInternalServerError
	case RequestLimitExceeded, Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadRequest
	}
}

// WriteError writes an error. An error that is not an *Error is written as an InternalError.
func WriteError(w http.ResponseWriter, err error) {
	known, ok := errors.AsType[*Error](err)
	if !ok {
		known = &Error{Code: InternalError, Message: err.Error()}
	}
	id := newRequestID()
	writeXML(w, known.httpStatus(), id, errorAnswer{
		Errors: []errorItem{{Code: known.Code, Message: known.Message}}, RequestID: id,
	}, xml.StartElement{Name: xml.Name{Local: "Response"}})
}

type errorAnswer struct {
	Errors    []errorItem `xml:"Errors>Error"`
	RequestID string      `xml:"RequestID"`
}

type errorItem struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}
