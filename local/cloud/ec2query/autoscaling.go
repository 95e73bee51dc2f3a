// SPDX-License-Identifier: Apache-2.0

package ec2query

import (
	"encoding/xml"
	"errors"
	"net/http"
)

// ValidationError is the error code of Auto Scaling for invalid parameters and unknown groups.
const ValidationError = "ValidationError"

// autoScalingVersion is the version of the Auto Scaling API, which the simulated cloud serves at the same address as
// EC2.
const autoScalingVersion = "2011-01-01"

// IsAutoScaling reports whether the call belongs to the Auto Scaling API.
func (q Request) IsAutoScaling() bool { return q.StringParameter("Version") == autoScalingVersion }

// Members is a list in a response of the Auto Scaling API.
type Members[T any] struct {
	Members []T `xml:"member"`
}

// AutoScalingGroup is a group in a response.
type AutoScalingGroup struct {
	Name      string                    `xml:"AutoScalingGroupName"`
	Min       int                       `xml:"MinSize"`
	Max       int                       `xml:"MaxSize"`
	Desired   int                       `xml:"DesiredCapacity"`
	Suspended Members[SuspendedProcess] `xml:"SuspendedProcesses"`
	Instances Members[GroupMember]      `xml:"Instances"`
	Tags      Members[GroupTag]         `xml:"Tags"`
}

// SuspendedProcess is a suspended process of a group.
type SuspendedProcess struct {
	Name   string `xml:"ProcessName"`
	Reason string `xml:"SuspensionReason"`
}

// GroupMember is an instance of a group.
type GroupMember struct {
	InstanceID       string `xml:"InstanceId"`
	LifecycleState   string `xml:"LifecycleState"`
	HealthStatus     string `xml:"HealthStatus"`
	AvailabilityZone string `xml:"AvailabilityZone"`
}

// GroupTag is a tag of a group.
type GroupTag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

// DescribeGroupsAnswer is the response to DescribeAutoScalingGroups.
type DescribeGroupsAnswer struct {
	Result struct {
		Groups Members[AutoScalingGroup] `xml:"AutoScalingGroups"`
	} `xml:"DescribeAutoScalingGroupsResult"`
	metadata
}

// GroupChangedAnswer is a response without content.
type GroupChangedAnswer struct{ metadata }

type metadata struct {
	Metadata answerHeadOfGroups `xml:"ResponseMetadata"`
}

type answerHeadOfGroups struct {
	RequestID string `xml:"RequestId"`
}

func (m *metadata) setRequestID(id string) { m.Metadata.RequestID = id }

// WriteAutoScalingError writes an error in the format of the Auto Scaling API.
func WriteAutoScalingError(w http.ResponseWriter, err error) {
	known, ok := errors.AsType[*Error](err)
	if !ok {
		known = &Error{Code: InternalError, Message: err.Error()}
	}
	id := newRequestID()
	writeXML(w, known.httpStatus(), id, autoScalingErrorAnswer{Code: known.Code, Message: known.Message, RequestID: id},
		xml.StartElement{Name: xml.Name{Local: "ErrorResponse"}})
}

type autoScalingErrorAnswer struct {
	Code      string `xml:"Error>Code"`
	Message   string `xml:"Error>Message"`
	RequestID string `xml:"RequestId"`
}
