// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/torpor-dev/torpor/local/cloud/wire"
)

func (c *Cloud) createTags(q wire.Request, _ time.Time) (wire.Body, error) {
	tags := q.Tags("Tag")
	if len(tags) == 0 {
		return nil, wire.Errorf(wire.MissingParameter, "The request must contain the parameter Tag")
	}
	return c.retag(q, func(i instance) (instance, error) {
		changed, err := withTags(i.Tags, tags)
		i.Tags = changed
		return i, err
	})
}

// deleteTags deletes the named tags, or all when none is named; one with a value only where the value is the same.
func (c *Cloud) deleteTags(q wire.Request, _ time.Time) (wire.Body, error) {
	named := q.Tags("Tag")
	return c.retag(q, func(i instance) (instance, error) {
		i.Tags = maps.Clone(i.Tags)
		maps.DeleteFunc(i.Tags, func(key, value string) bool {
			return len(named) == 0 || slices.ContainsFunc(named, func(t wire.Tag) bool {
				return t.Key == key && (!t.HasValue || t.Value == value)
			})
		})
		return i, nil
	})
}

// retag changes the tags of all named instances or of none.
func (c *Cloud) retag(q wire.Request, change func(instance) (instance, error)) (wire.Body, error) {
	ids := q.List("ResourceId")
	if len(ids) == 0 {
		return nil, wire.Errorf(wire.MissingParameter, "The request must contain the parameter ResourceId")
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") {
			return nil, wire.Errorf(wire.InvalidID, "The ID '%s' is not valid: this cloud has instances only", id)
		}
	}
	before, err := c.find(ids)
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
	if err := c.commit(c.ledger.with(after...), after...); err != nil {
		return nil, err
	}
	return &wire.Done{Return: true}, nil
}

// withTags returns a copy of the tags with the given ones put in, inside EC2's limits.
func withTags(tags map[string]string, given []wire.Tag) (map[string]string, error) {
	const most, longestKey, longestValue = 50, 128, 256
	after := maps.Clone(tags)
	if after == nil {
		after = map[string]string{}
	}
	for _, tag := range given {
		switch {
		case tag.Key == "" || utf8.RuneCountInString(tag.Key) > longestKey:
			return nil, wire.Errorf(wire.InvalidParameterValue, "Tag key must have 1 to %d characters, found '%s'", longestKey, tag.Key)
		case strings.HasPrefix(strings.ToLower(tag.Key), "aws:"):
			return nil, wire.Errorf(wire.InvalidParameterValue, "Tag keys starting with 'aws:' are reserved for internal use, found '%s'", tag.Key)
		case utf8.RuneCountInString(tag.Value) > longestValue:
			return nil, wire.Errorf(wire.InvalidParameterValue, "The value of tag '%s' must have at most %d characters", tag.Key, longestValue)
		}
		after[tag.Key] = tag.Value
	}
	if len(after) > most {
		return nil, wire.Errorf(wire.TagLimitExceeded, "A resource has at most %d tags, the request makes it %d.", most, len(after))
	}
	return after, nil
}

// describeTags answers all that match, on one page.
func (c *Cloud) describeTags(q wire.Request, _ time.Time) (wire.Body, error) {
	filters, err := readFilters(q, tagValues(wire.TagDescription{}))
	if err != nil {
		return nil, err
	}
	answer := &wire.DescribeTags{}
	for _, r := range c.ledger.Reservations {
		for _, id := range r.Instances {
			tags := c.ledger.Instances[id].Tags
			for _, key := range slices.Sorted(maps.Keys(tags)) {
				tag := wire.TagDescription{ResourceID: id, ResourceType: "instance", Key: key, Value: tags[key]}
				if filters.match(tagValues(tag)) {
					answer.Tags.Items = append(answer.Tags.Items, tag)
				}
			}
		}
	}
	return answer, nil
}

func tagValues(t wire.TagDescription) values {
	return func(name string) ([]string, bool) {
		value, ok := map[string]string{"resource-id": t.ResourceID, "resource-type": t.ResourceType, "key": t.Key, "value": t.Value}[name]
		return []string{value}, ok
	}
}
