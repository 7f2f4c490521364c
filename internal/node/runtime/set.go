package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options configures where to look for runtimes.
type Options struct {
	// Root is the folder of the sockets. If it is empty, it defaults to HostRun.
	Root string
	// SocketFile is a comma-separated list of the only candidates, relative to Root, if it is set (ND-030).
	SocketFile string
	// Clock is for tests. nil means the real clock.
	Clock  clock.Clock
	Meters *Meters
}

// Set holds the runtimes of the node. It is safe for concurrent use.
type Set struct {
	options Options
	// commands is shared by all runtimes.
	commands chan struct{}

	mu      sync.Mutex
	members []*member         // in the order of the candidates
	logged  map[string]string // what was logged last; only used by Look
}

// member is one candidate and its state.
type member struct {
	endpoint string
	runtime  *Runtime // nil until the first response
	problem  string   // why it cannot be used now
	missing  bool     // there is nothing to connect to
	pods     int      // number of kubelet's pods, counted if there is more than one candidate
}

// NewSet returns a Set. It looks for runtimes when Run is called.
func NewSet(options Options) *Set {
	if options.Root == "" {
		options.Root = HostRun
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Meters == nil {
		options.Meters = NewMeters()
	}
	return &Set{options: options, commands: make(chan struct{}, commandsAtOnce)}
}

// Run looks for runtimes now and every 10 to 30 s until the context is canceled. It never gives up, so the
// daemon need not be restarted if a runtime starts late (ND-037, ND-038).
func (s *Set) Run(ctx context.Context) error {
	defer s.close()
	for {
		s.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.options.Clock.After(10*time.Second + rand.N(20*time.Second)):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every node has its own runtimes.
func (s *Set) NeedLeaderElection() bool { return false }

// Look probes all candidates once.
func (s *Set) Look(ctx context.Context) {
	found := candidates(goruntime.GOOS, s.options.Root, s.options.SocketFile)
	before := s.snapshot()
	members := make([]*member, len(found))
	for i, c := range found {
		m := &member{endpoint: c.endpoint, problem: c.missing, missing: c.missing != ""}
		if at := slices.IndexFunc(before, func(b member) bool { return b.endpoint == c.endpoint }); at >= 0 {
			m.runtime, m.pods = before[at].runtime, before[at].pods
		}
		if c.missing == "" {
			if err := s.probe(ctx, m); err != nil {
				m.problem = err.Error()
			}
		}
		members[i] = m
	}

	s.count(ctx, members)
	s.mu.Lock()
	s.members = members
	s.mu.Unlock()
	s.logChanges(ctx)
}

// probe requests the version of the runtime and, the first time, its images.
func (s *Set) probe(ctx context.Context, m *member) error {
	r := m.runtime
	if r == nil {
		var err error
		if r, err = dial(m.endpoint, s.options.Meters, s.commands); err != nil {
			return err
		}
	}

	name, err := r.version(ctx)
	if err == nil && m.runtime == nil {
		r.name = name
		detect, cancel := context.WithTimeout(ctx, detectTimeout)
		defer cancel()
		_, err = r.Images(detect)
	} else if err == nil && name != r.name {
		err = fmt.Errorf("it was %s and calls itself %s now", r.name, name)
		// It is connected again under its new name when Look is called next.
		m.runtime = nil
	}
	if m.runtime == nil && err != nil {
		_ = r.connection.Close()
		return err
	}

	m.runtime = r
	return err
}

// count counts kubelet's pods in each runtime if there are several. A runtime that does not respond may have
// pods too.
func (s *Set) count(ctx context.Context, members []*member) {
	if there := slices.DeleteFunc(slices.Clone(members), func(m *member) bool {
		return m.missing && m.runtime == nil
	}); len(there) < 2 {
		return
	}

	for _, m := range members {
		if m.problem != "" {
			continue
		}
		pods, err := m.runtime.sandboxes(ctx)
		if err != nil {
			m.problem = err.Error()
			continue
		}
		m.pods = pods
	}
}

// logChanges logs what changed since the last call of Look. Missing paths are logged only if there is no
// other problem.
func (s *Set) logChanges(ctx context.Context) {
	logger := klog.FromContext(ctx)
	state := map[string]string{}
	for _, m := range s.snapshot() {
		switch {
		case m.problem == "":
			state[m.endpoint] = "usable: " + m.runtime.name
		case !m.missing:
			state[m.endpoint] = m.problem
		}
	}

	if err := s.Ready(); err != nil {
		state["any"] = err.Error()
	}

	for endpoint, now := range state {
		if s.logged[endpoint] != now {
			logger.Info("Container runtime", "endpoint", endpoint, "state", now)
		}
	}

	s.logged = state
}

func (s *Set) snapshot() []member {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]member, len(s.members))
	for i, m := range s.members {
		list[i] = *m
	}
	return list
}

func (s *Set) close() {
	for _, m := range s.snapshot() {
		if m.runtime != nil {
			_ = m.runtime.connection.Close()
		}
	}
}

// Ready returns nil if a runtime is usable. Otherwise it returns an error that lists every path with the
// reason why it is not usable (ND-037, ND-046).
func (s *Set) Ready() error {
	members := s.snapshot()
	if len(members) == 0 {
		return errors.New("container runtimes have not been looked for yet")
	}
	var reasons []string
	for _, m := range members {
		if m.problem == "" {
			return nil
		}
		reasons = append(reasons, m.endpoint+": "+m.problem)
	}
	return fmt.Errorf("no usable container runtime: %s", strings.Join(reasons, "; "))
}

// ForContainer returns the runtime of a container, given its full ID (ND-035). If several have the name, as on a node of k3s where the
// containerd of the distribution is installed, too, it is the one that runs most of kubelet's pods, as far as is known.
func (s *Set) ForContainer(id string) (*Runtime, error) {
	scheme, _, ok := SplitID(id)
	if !ok {
		return nil, fmt.Errorf("container ID %q does not have the form <runtime>://<id>", id)
	}

	var other []string
	var best, silent *member
	var unknown error
	members := s.snapshot()
	for i := range members {
		switch m := &members[i]; {
		case m.runtime == nil && !m.missing && m.problem != "":
			unknown = fmt.Errorf("%w: %s, which may be %s: %s", ErrUnavailable, m.endpoint, scheme, m.problem)
		case m.runtime == nil:
		case m.runtime.name != scheme:
			other = append(other, m.runtime.name)
		case m.problem == "" && (best == nil || m.pods > best.pods):
			best = m
		case m.problem != "" && (silent == nil || m.pods > silent.pods):
			silent = m
		}
	}

	switch {
	case silent != nil && (best == nil || best.pods == 0 || silent.pods > best.pods):
		return silent.runtime, nil // its calls return the error
	case best != nil && (best.pods > 0 || unknown == nil):
		return best.runtime, nil
	}

	if len(other) == 0 {
		if err := s.Ready(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if unknown != nil {
		return nil, unknown
	}

	return nil, fmt.Errorf("no runtime named %q on this node, only %s", scheme, strings.Join(other, ", "))
}

// Containers lists the containers of a pod in all runtimes of the node, including those that have ended. It
// returns an error if a runtime that may have some does not respond. One that had no pods when they were counted has
// none if another one runs pods, because the kubelet uses only one.
func (s *Set) Containers(ctx context.Context, podUID string) ([]Container, error) {
	var all []Container
	known := false
	members := s.snapshot()
	elsewhere := slices.ContainsFunc(members, func(m member) bool { return m.problem == "" && m.pods > 0 })
	for _, m := range members {
		if m.runtime == nil || m.problem != "" && m.pods == 0 && elsewhere {
			continue
		}
		list, err := m.runtime.Containers(ctx, podUID)
		if err != nil {
			return nil, err
		}
		all, known = append(all, list...), true
	}

	if !known {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, s.Ready())
	}

	return all, nil
}

// ForImages returns the runtime into which images are pulled. If there are several, it is the one that runs
// kubelet's pods, or else the first one (ND-036, IMG-146). The daemon itself is one of kubelet's pods.
// Therefore a runtime without pods is not used while another one, which may be kubelet's, does not respond.
func (s *Set) ForImages() (*Runtime, error) {
	var best, silent *member
	members := s.snapshot()
	for i := range members {
		switch m := &members[i]; {
		case m.problem == "" && (best == nil || m.pods > best.pods):
			best = m
		case m.problem != "" && (m.pods > 0 || !m.missing && m.runtime == nil):
			silent = m
		}
	}

	switch {
	case best == nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, s.Ready())
	case best.pods == 0 && silent != nil:
		return nil, fmt.Errorf("%w: %s, which may be the kubelet's: %s; %s runs no pods", ErrUnavailable,
			silent.endpoint, silent.problem, best.endpoint)
	}

	return best.runtime, nil
}
