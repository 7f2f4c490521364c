// Package record has what is recorded of a run: each change of an object, each write that a manager sent,
// each fault, each rollout that a user began, and each phase. A record is a file of JSON lines, which can be judged again at any time.
package record

import (
	"encoding/json"
	"time"
)

// Line is one line of a record. Exactly one field is set.
type Line struct {
	Change  *Change  `json:"change,omitempty"`
	Run     *Run     `json:"run,omitempty"`
	Request *Request `json:"request,omitempty"`
	Fault   *Fault   `json:"fault,omitempty"`
	Rollout *Rollout `json:"rollout,omitempty"`
	Phase   *Phase   `json:"phase,omitempty"`
	Sample  *Sample  `json:"sample,omitempty"`
}

// Run says what was played. It is the first line.
type Run struct {
	Seed uint64 `json:"seed"`
	// Seconds is for how long faults were injected.
	Seconds int `json:"seconds"`
	// Commit is the version of the sources, Cores how many processors the machine has.
	Commit string `json:"commit,omitempty"`
	Cores  int    `json:"cores"`
	// Faults is how many faults were planned.
	Faults int `json:"faults,omitempty"`
	// Clocks is set if the clocks of the managers differed.
	Clocks bool `json:"clocks,omitempty"`
	// Nodes is how many real nodes there were. Without any, nodes were simulated.
	Nodes int `json:"nodes,omitempty"`
	// Begin is when the record begins.
	Begin time.Time `json:"begin"`
}

// Change is one revision of etcd: an object was written or removed.
type Change struct {
	// Revision is etcd's, and so the object's resource version.
	Revision int64 `json:"revision"`
	// Time is when the recorder learned of it. A paused etcd delivers late.
	Time time.Time `json:"time"`
	// Resource is the plural name of the kind, such as pods.
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Object is what is stored now. It is empty if the object was removed.
	Object json.RawMessage `json:"object,omitempty"`
}

// Request is a write that a manager sent to its proxy.
type Request struct {
	// Manager is the process that sent it, such as a.2: the second process of manager a.
	Manager string    `json:"manager"`
	Verb    string    `json:"verb"`
	Path    string    `json:"path"`
	Agent   string    `json:"agent,omitempty"`
	Begin   time.Time `json:"begin"`
	// End is when the API server answered, or when the proxy gave up.
	End time.Time `json:"end"`
	// Status is the API server's answer. It is 0 if there was none, or if the request was not sent on.
	Status int `json:"status,omitempty"`
	// Sent is set if the request was sent on to the API server.
	Sent bool `json:"sent"`
	// Revision is the resource version of the object in the answer.
	Revision int64 `json:"revision,omitempty"`
	// Fault is what the proxy did to the request or its answer.
	Fault string `json:"fault,omitempty"`
}

// Fault is a fault that was injected.
type Fault struct {
	Number int       `json:"number"`
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end"`
	// Hits is how many requests, reviews, watches or programs it hit. Records from before it was counted have none.
	Hits *int `json:"hits,omitempty"`
	// Error is set if the fault could not be injected, or not ended in the usual way.
	Error string `json:"error,omitempty"`
}

// Sample is what a process of a manager or of the node daemon takes at one moment.
type Sample struct {
	// Manager is the process, such as a.2, or the node and the process of a daemon.
	Manager string    `json:"manager"`
	Time    time.Time `json:"time"`
	// Memory is what is resident, and Heap what is in use of the heap, both in bytes.
	Memory     float64 `json:"memory"`
	Heap       float64 `json:"heap"`
	Goroutines float64 `json:"goroutines"`
}

// Rollout is a change that a user made, and what the user saw of it. It is written when the user goes on.
type Rollout struct {
	Resource string    `json:"resource"`
	Name     string    `json:"name"`
	Begin    time.Time `json:"begin"`
	End      time.Time `json:"end"`
	// Over is set if the user saw the end of the rollout. Hurried is set if the user did not wait for it.
	Over    bool `json:"over"`
	Hurried bool `json:"hurried,omitempty"`
}

// Names of phases. A phase lasts until the next one begins.
const (
	// FaultsBegin is when rollouts run and faults are injected.
	FaultsBegin = "faults begin"
	// FaultsEnd is when the last fault has ended. From here on every rollout must come to its end.
	FaultsEnd = "faults end"
	// RestBegins is when all has come to its end. From here on nothing may be written.
	RestBegins = "rest begins"
	// RestEnds is the end of the record.
	RestEnds = "rest ends"
)

// Phase is the begin of a part of the run.
type Phase struct {
	Name string    `json:"name"`
	Time time.Time `json:"time"`
}

// Record is a whole record. Changes are in the order of their revisions, all else is in the order of time.
type Record struct {
	Run      Run
	Changes  []Change
	Requests []Request
	Faults   []Fault
	Rollouts []Rollout
	Phases   []Phase
	Samples  []Sample
}

// Phase returns when a phase began, or the zero time if it did not.
func (r *Record) Phase(name string) time.Time {
	for _, p := range r.Phases {
		if p.Name == name {
			return p.Time
		}
	}
	return time.Time{}
}
