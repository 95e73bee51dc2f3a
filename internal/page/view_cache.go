// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// viewCache shares views among the streams of one query whose callers see the same objects. After a change, the
// switches are filtered and sorted only once, instead of once per open page. The zero value is empty.
type viewCache struct {
	mu    sync.Mutex
	views map[string]*cachedView
}

// cachedView is a view of one version of the inventory. Its first caller composes it.
type cachedView struct {
	version    <-chan struct{}
	composedAt time.Time
	compose    sync.Once
	view       view
}

// get returns a view without buttons, which the caller must not modify. The view is at most coalesceTime old, and
// includes all changes to the inventory before the call.
func (c *viewCache) get(all *inventory, sees *visibility, q viewQuery, now time.Time) view {
	version, key := all.changeChannel(), q.encode()+"\n"+sees.scope()
	c.mu.Lock()
	maps.DeleteFunc(c.views, func(_ string, one *cachedView) bool {
		return one.version != version || now.Sub(one.composedAt).Abs() >= coalesceTime
	})
	one := c.views[key]
	if one == nil {
		if c.views == nil {
			c.views = map[string]*cachedView{}
		}
		one = &cachedView{version: version, composedAt: now}
		c.views[key] = one
	}
	c.mu.Unlock()
	one.compose.Do(func() { one.view = selectView(all, sees, q, now) })
	return one.view
}

// scope returns a text that identifies what the caller may see. Callers with the same scope see the same objects.
func (v *visibility) scope() string {
	var seen []string
	for kind, may := range v.everywhere {
		if may {
			seen = append(seen, kind)
		}
	}
	for at, may := range v.places {
		if may {
			seen = append(seen, at.kind+"/"+at.namespace)
		}
	}
	slices.Sort(seen)
	return fmt.Sprintf("%d\n%s", v.unreviewed, strings.Join(seen, "\n"))
}
