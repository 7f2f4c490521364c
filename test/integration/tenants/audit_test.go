//go:build integration

package tenants

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// audit is the API server's log of what the manager and the hostile user write in the namespace of the other
// tenant.
type audit struct {
	path string

	mu       sync.Mutex
	position int64
	events   []auditv1.Event
}

// newAudit makes an API server keep the log. It writes each line before it answers the request.
func newAudit(dir string, env *envtest.Environment) (*audit, error) {
	a := &audit{path: filepath.Join(dir, "audit.log")}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(fmt.Sprintf(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
- level: Metadata
  users: [%q, %q]
  namespaces: [%q]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`, account, hostile, peacefulNamespace)), 0o600); err != nil {
		return nil, err
	}
	env.ControlPlane.GetAPIServer().Configure().Append("audit-log-path", a.path).Append("audit-policy-file", policy)
	return a, nil
}

// read returns all events so far.
func (a *audit) read() ([]auditv1.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	file, err := os.Open(a.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.position, io.SeekStart); err != nil {
		return nil, err
	}
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // a line that is not complete yet is read next time
			return a.events, nil
		}
		if err != nil {
			return nil, err
		}
		a.position += int64(len(line))
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		a.events = append(a.events, event)
	}
}

// first returns when the API server received the manager's first write for an edit at a time, which is that of the new
// revision, and false if there is none.
func (a *audit) first(after time.Time) (time.Time, bool) {
	events, err := a.read()
	if err != nil {
		return time.Time{}, false
	}
	var first time.Time
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		at := e.RequestReceivedTimestamp.Time
		if at.Before(after.Add(-time.Minute)) {
			break
		}
		revision := e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == "controllerrevisions"
		if revision && e.User.Username == account && at.After(after) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// harm returns what the other tenant suffered since a time: writes of the hostile user that were accepted,
// and deletions and evictions of anything but old revisions by the manager.
func (a *audit) harm(since time.Time) ([]string, error) {
	events, err := a.read()
	if err != nil {
		return nil, err
	}
	var harm []string
	for i := range events {
		e := &events[i]
		if e.RequestReceivedTimestamp.Time.Before(since) || e.ObjectRef == nil || e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 {
			continue
		}
		removes := e.Verb == "delete" || e.Verb == "deletecollection" || e.ObjectRef.Subresource == "eviction"
		if e.User.Username == hostile || removes && e.ObjectRef.Resource != "controllerrevisions" && e.ObjectRef.Resource != "imagepulljobs" {
			harm = append(harm, fmt.Sprintf("%s: %s %s/%s %s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name))
		}
	}
	return harm, nil
}
