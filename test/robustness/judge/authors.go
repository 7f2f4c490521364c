package judge

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			// The answer of a write that changes nothing names an older revision.
			if a.answered[r.Revision] == nil {
				a.answered[r.Revision] = r
			}
		case r.Sent && (r.Status == 0 || r.Status >= 500 || r.Verb == "DELETE" && r.Status < 300):
			k := keyOf(r.Path)
			a.unanswered[k] = append(a.unanswered[k], r)
		}
	}
	return a
}

// keyOf returns the end of a path by which an object may be looked up: namespace, resource and name. The namespace
// may be empty, and the name is, where an object is created.
func keyOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	version := 2 // api, v1
	if parts[0] == "apis" {
		version = 3
	}
	parts = parts[min(version, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[1:]
	} else {
		parts = append([]string{""}, parts...)
	}
	return strings.Join(parts[:min(3, len(parts))], "/")
}

// of returns the process that made a change, or nothing.
func (a *authors) of(c *change) string {
	if r := a.answered[c.Revision]; r != nil && !c.Time.Before(r.Begin) {
		return r.Manager
	}
	within := func(r *record.Request) bool {
		// The recorder learns of a change a moment after it.
		return !c.Time.Before(r.Begin) && c.Time.Before(r.End.Add(10*time.Second))
	}
	in, there := c.Namespace+"/"+c.Resource, c.Namespace+"/"+c.Resource+"/"+c.Name
	for _, r := range a.unanswered[there] {
		switch {
		case !within(r), c.before == nil, ofAnotherPart(r, c), ofAnotherClient(r, c):
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

// ofAnotherClient reports whether the managed fields of a change say that somebody else made it.
func ofAnotherClient(r *record.Request, c *change) bool {
	if c.after == nil {
		return false
	}
	client, _, _ := strings.Cut(r.Agent, "/")
	other := false
	for _, is := range c.after.ManagedFields {
		if slices.ContainsFunc(c.before.ManagedFields, func(was metav1.ManagedFieldsEntry) bool {
			return was.Manager == is.Manager && was.Subresource == is.Subresource && was.Time.Equal(is.Time)
		}) {
			continue
		}
		if is.Manager == client {
			return false
		}
		other = true
	}
	return other
}

// ofAnotherPart reports whether a change of a pod left the status alone, and the write is one of the status.
func ofAnotherPart(r *record.Request, c *change) bool {
	return strings.HasSuffix(r.Path, "/status") && c.before.pod != nil && c.after != nil &&
		equality.Semantic.DeepEqual(c.before.pod.Status, c.after.pod.Status)
}
