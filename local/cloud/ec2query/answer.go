// SPDX-License-Identifier: Apache-2.0

package ec2query

import (
	"bytes"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"time"
)

// Set is EC2's list: <item> elements inside a named one, which is there even when it is empty.
type Set[T any] struct {
	Items []T `xml:"item"`
}

// NewSet returns the set of the items.
func NewSet[T any](items []T) Set[T] { return Set[T]{Items: items} }

// Reservation is what one RunInstances created.
type Reservation struct {
	ReservationID string        `xml:"reservationId"`
	OwnerID       string        `xml:"ownerId"`
	Groups        Set[struct{}] `xml:"groupSet"`
	Instances     Set[Instance] `xml:"instancesSet"`
}

// Instance is one machine, in the order EC2 gives its fields.
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
}

// InstanceState is a power state: its number and its name.
type InstanceState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

// StateReason is why the state last changed.
type StateReason struct {
	Code    string `xml:"code"    json:"code"`
	Message string `xml:"message" json:"message"`
}

// Placement is where an instance is.
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

// StateChange is the answer for one instance of a start, stop or terminate.
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

// RunInstancesAnswer is the body of that answer.
type RunInstancesAnswer struct {
	answerHead
	Reservation
}

// DescribeInstancesAnswer is the body of that answer.
type DescribeInstancesAnswer struct {
	answerHead
	Reservations Set[Reservation] `xml:"reservationSet"`
	NextToken    string           `xml:"nextToken,omitempty"`
}

// StateChangesAnswer is the body of the answers to StartInstances, StopInstances and TerminateInstances.
type StateChangesAnswer struct {
	answerHead
	Instances Set[StateChange] `xml:"instancesSet"`
}

// DescribeTagsAnswer is the body of that answer.
type DescribeTagsAnswer struct {
	answerHead
	Tags Set[TagDescription] `xml:"tagSet"`
}

// ReturnAnswer is the body of the answers without content.
type ReturnAnswer struct {
	answerHead
	Return bool `xml:"return"`
}

// Timestamp is a time with milliseconds, in UTC.
type Timestamp time.Time

// MarshalText writes the time as EC2 does.
func (t Timestamp) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format("2006-01-02T15:04:05.000Z")), nil
}

// Answer is the answer to one call.
type Answer interface {
	setRequestID(id string)
}

// answerHead is what every answer starts with.
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
	// A client that has left needs no answer.
	_, _ = w.Write(text.Bytes())
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
