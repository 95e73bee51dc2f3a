// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

func (c *Cloud) createTags(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
	tags := q.ListTags("Tag")
	if len(tags) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter Tag")
	}
	return c.changeTags(q, func(i instance) (instance, error) {
		changed, err := withTags(i.Tags, tags)
		i.Tags = changed
		return i, err
	})
}

// deleteTags deletes the named tags, or all when none is named; one with a value only where the value is the same.
func (c *Cloud) deleteTags(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
	named := q.ListTags("Tag")
	return c.changeTags(q, func(i instance) (instance, error) {
		i.Tags = maps.Clone(i.Tags)
		maps.DeleteFunc(i.Tags, func(key, value string) bool {
			return len(named) == 0 || slices.ContainsFunc(named, func(t ec2query.Tag) bool {
				return t.Key == key && (!t.HasValue || t.Value == value)
			})
		})
		return i, nil
	})
}

// changeTags changes the tags of all named instances or of none.
func (c *Cloud) changeTags(q ec2query.Request, change func(instance) (instance, error)) (ec2query.Answer, error) {
	ids := q.ListValues("ResourceId")
	if len(ids) == 0 {
		return nil, ec2query.NewErrorf(ec2query.MissingParameter, "The request must contain the parameter ResourceId")
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") {
			return nil, ec2query.NewErrorf(ec2query.InvalidID, "The ID '%s' is not valid: this cloud has instances only", id)
		}
	}
	before, err := c.findInstances(ids)
	if err != nil {
		return nil, err
	}
	var after []instance
	for _, i := range before {
		changed, err := change(i)
		if err != nil {
			return nil, err
		}
		after = append(after, changed)
	}
	if err := c.saveChanges(c.state.withInstances(after...), after...); err != nil {
		return nil, err
	}
	return &ec2query.ReturnAnswer{Return: true}, nil
}

// withTags returns a copy of the tags with the given ones put in, inside EC2's limits.
func withTags(tags map[string]string, given []ec2query.Tag) (map[string]string, error) {
	const most, longestKey, longestValue = 50, 128, 256
	after := maps.Clone(tags)
	if after == nil {
		after = map[string]string{}
	}
	for _, tag := range given {
		switch {
		case tag.Key == "" || utf8.RuneCountInString(tag.Key) > longestKey:
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Tag key must have 1 to %d characters, found '%s'", longestKey, tag.Key)
		case strings.HasPrefix(strings.ToLower(tag.Key), "aws:"):
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "Tag keys starting with 'aws:' are reserved for internal use, found '%s'", tag.Key)
		case utf8.RuneCountInString(tag.Value) > longestValue:
			return nil, ec2query.NewErrorf(ec2query.InvalidParameterValue, "The value of tag '%s' must have at most %d characters", tag.Key, longestValue)
		}
		after[tag.Key] = tag.Value
	}
	if len(after) > most {
		return nil, ec2query.NewErrorf(ec2query.TagLimitExceeded, "A resource has at most %d tags, the request makes it %d.", most, len(after))
	}
	return after, nil
}

// describeTags answers all that match, on one page.
func (c *Cloud) describeTags(q ec2query.Request, _ time.Time) (ec2query.Answer, error) {
	filters, err := readFilters(q, tagValues(ec2query.TagDescription{}))
	if err != nil {
		return nil, err
	}
	answer := &ec2query.DescribeTagsAnswer{}
	for _, r := range c.state.Reservations {
		for _, id := range r.Instances {
			tags := c.state.Instances[id].Tags
			for _, key := range slices.Sorted(maps.Keys(tags)) {
				tag := ec2query.TagDescription{ResourceID: id, ResourceType: "instance", Key: key, Value: tags[key]}
				if filters.matchAll(tagValues(tag)) {
					answer.Tags.Items = append(answer.Tags.Items, tag)
				}
			}
		}
	}
	return answer, nil
}

func tagValues(t ec2query.TagDescription) valuesByName {
	return func(name string) ([]string, bool) {
		value, ok := map[string]string{"resource-id": t.ResourceID, "resource-type": t.ResourceType, "key": t.Key, "value": t.Value}[name]
		return []string{value}, ok
	}
}
