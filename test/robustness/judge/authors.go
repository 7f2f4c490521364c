package judge

import (
	"strings"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// authors knows which process of which manager made a change.
type authors struct {
	// answered are the requests whose answer named a revision. unanswered are those that were sent on, and of
	// whose answer nothing is known, by the end of their path.
	answered   map[int64]*record.Request
	unanswered map[string][]*record.Request
}

func newAuthors(all []record.Request) *authors {
	a := &authors{answered: map[int64]*record.Request{}, unanswered: map[string][]*record.Request{}}
	for i := range all {
		r := &all[i]
		switch {
		case r.Revision != 0:
			a.answered[r.Revision] = r
		case r.Sent && (r.Status == 0 || r.Status >= 500 || r.Verb == "DELETE" && r.Status < 300):
			for _, k := range keysOf(r.Path) {
				a.unanswered[k] = append(a.unanswered[k], r)
			}
		}
	}
	return a
}

// keysOf returns the ends of a path by which an object may be looked up: resource, namespace and name.
func keysOf(path string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		if p == "namespaces" && len(parts) > i+2 {
			return []string{strings.Join(parts[i+1:min(len(parts), i+4)], "/")}
		}
	}
	return nil
}

// of returns the process that made a change, or nothing.
func (a *authors) of(c *change) string {
	if r := a.answered[c.Revision]; r != nil {
		return r.Manager
	}
	within := func(r *record.Request) bool {
		// The recorder learns of a change a moment after it.
		return !c.Time.Before(r.Begin) && c.Time.Before(r.End.Add(10*time.Second))
	}
	in, there := c.Namespace+"/"+c.Resource, c.Namespace+"/"+c.Resource+"/"+c.Name
	for _, r := range a.unanswered[there] {
		switch {
		case !within(r), c.before == nil:
		case r.Verb == "DELETE":
			if c.after == nil || c.before.DeletionTimestamp == nil && c.after.DeletionTimestamp != nil {
				return r.Manager
			}
		case c.after != nil && c.before.DeletionTimestamp == nil && c.after.DeletionTimestamp == nil:
			return r.Manager
		}
	}
	if c.before == nil {
		for _, r := range a.unanswered[in] {
			if r.Verb == "POST" && within(r) {
				return r.Manager
			}
		}
	}
	return ""
}
