package faults

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/afloat-project/afloat/test/robustness/cluster"
	"github.com/afloat-project/afloat/test/robustness/proxy"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// Pods hits pods as users and drains do.
type Pods interface {
	// Delete deletes a pod, Evict asks for its eviction. The number chooses it among those of the moment. They return
	// how many pods were hit.
	Delete(ctx context.Context, choice uint64) (int, error)
	Evict(ctx context.Context, choice uint64) (int, error)
	// Crash ends the main process of a container, and returns the namespace, the pod and the container.
	Crash(ctx context.Context, choice uint64) (string, error)
}

// Injector injects faults.
type Injector struct {
	Cluster  *cluster.Cluster
	Managers []*cluster.Manager
	Webhook  *Webhook
	// Wires are the network between each real node and the API server.
	Wires  map[string]*proxy.Wire
	Pods   Pods
	Record *record.Writer

	mutex sync.Mutex
	busy  map[string]*sync.Mutex
}

// Run injects a plan, and returns when the last fault has ended. If the context ends, no further fault
// begins.
func (i *Injector) Run(ctx context.Context, plan []Step) {
	begin := time.Now()
	var all sync.WaitGroup
	for number, step := range plan {
		if !until(ctx, begin.Add(step.At)) {
			break
		}
		all.Go(func() { i.inject(context.WithoutCancel(ctx), ctx.Done(), number+1, step) })
	}
	all.Wait()
}

// until waits for a time, and returns false if the context ends before.
func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// last waits for as long as a fault lasts, or until the run is interrupted.
func last(length time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

func (i *Injector) lock(target string) *sync.Mutex {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.busy == nil {
		i.busy = map[string]*sync.Mutex{}
	}
	if i.busy[target] == nil {
		i.busy[target] = &sync.Mutex{}
	}
	return i.busy[target]
}

// inject injects one fault, and records it when it has ended.
func (i *Injector) inject(ctx context.Context, done <-chan struct{}, number int, s Step) {
	// A program that is being started again cannot be hit by another fault of programs. Who leads may change until it is
	// started.
	process := map[string]bool{Kill: true, Pause: true, Restart: true, Clock: true, Overlap: true}[s.Kind]
	target := s.Target
	for held := false; !held; {
		if target == leader {
			s.Target = i.leader().Name
		}
		if !process {
			break
		}
		lock := i.lock(s.Target)
		lock.Lock()
		if held = target != leader || i.leader().Name == s.Target; held {
			defer lock.Unlock()
		} else {
			lock.Unlock()
		}
	}

	f := record.Fault{Number: number, Kind: s.Kind, Target: s.Target, Begin: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	hits, err := 1, error(nil)
	if s.Kind == Crash {
		f.Target, err = i.Pods.Crash(ctx, s.Choice)
	} else {
		hits, err = i.play(ctx, done, s)
	}
	f.End, f.Hits = time.Now(), &hits
	if err != nil {
		f.Error = err.Error()
		log.Printf("Fault %d, %s of %s: %v", number, s.Kind, s.Target, err)
	}
	i.Record.Write(record.Line{Fault: &f})
}

// leader returns the manager that wrote the lock last.
func (i *Injector) leader() *cluster.Manager {
	found := i.Managers[0]
	for _, m := range i.Managers {
		if m.Proxy.Renewed().After(found.Proxy.Renewed()) {
			found = m
		}
	}
	return found
}

func (i *Injector) manager(name string) *cluster.Manager {
	for _, m := range i.Managers {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// play injects one fault, and returns how often it hit anything.
func (i *Injector) play(ctx context.Context, done <-chan struct{}, s Step) (int, error) {
	switch s.Kind {
	case WebhookSlow, WebhookFails:
		end := i.Webhook.inject(s.Kind)
		last(s.Length, done)
		return end(), nil
	case DeletePod:
		return i.Pods.Delete(ctx, s.Choice)
	case EvictPod:
		return i.Pods.Evict(ctx, s.Choice)
	}
	if m := i.manager(s.Target); m != nil {
		return i.playManager(ctx, done, m, s)
	}
	if node, ok := strings.CutSuffix(s.Target, networkOf); ok {
		return network(i.Wires[node], done, s), nil
	}
	if node, ok := strings.CutSuffix(s.Target, daemonOf); ok {
		return 1, i.playDaemon(ctx, done, node, s)
	}
	return 1, i.playProgram(ctx, done, s)
}

// playDaemon hits the node daemon of a node. Its kubelet starts it again.
func (i *Injector) playDaemon(ctx context.Context, done <-chan struct{}, node string, s Step) error {
	_, pid, err := i.Cluster.Daemon(ctx, node)
	if err != nil {
		return err
	}
	signal := func(signal syscall.Signal) error {
		if err := syscall.Kill(pid, signal); err != nil {
			return fmt.Errorf("sending %s to the daemon of %s: %w", signal, node, err)
		}
		return nil
	}
	if s.Kind == Pause {
		return pause(signal, s.Length, done)
	}
	return signal(syscall.SIGKILL)
}

func (i *Injector) playManager(ctx context.Context, done <-chan struct{}, m *cluster.Manager, s Step) (int, error) {
	switch s.Kind {
	case Kill, Restart, Clock:
		signal, shift := syscall.SIGKILL, time.Duration(0)
		if s.Kind == Restart {
			signal = syscall.SIGTERM
		}
		if s.Kind == Clock {
			shift = s.Delay
		}
		if err := m.Stop(ctx, signal); err != nil {
			return 0, err
		}
		last(s.Length, done)
		return 1, m.Start(shift)
	case Pause:
		return 1, pause(m.Signal, s.Length, done)
	case Overlap:
		release := m.Proxy.Inject(&proxy.Fault{Kind: proxy.HoldWrites})
		defer release()
		// What it is about to write is held back before it is paused.
		last(time.Second, done)
		if err := pause(m.Signal, s.Length, done); err != nil {
			return 0, err
		}
		last(3*time.Second, done)
		if i.leader() == m { // nobody took the lease
			return 0, nil
		}
		return 1, nil
	default:
		return network(m.Proxy, done, s), nil
	}
}

// network injects a fault of the network, and returns how often it hit anything.
func network(on interface{ Inject(f *proxy.Fault) func() }, done <-chan struct{}, s Step) int {
	f := &proxy.Fault{Kind: proxy.Kind(s.Kind), Share: s.Share, Delay: s.Delay}
	end := on.Inject(f)
	last(s.Length, done)
	end()
	return f.Hits()
}

func pause(signal func(syscall.Signal) error, length time.Duration, done <-chan struct{}) error {
	if err := signal(syscall.SIGSTOP); err != nil {
		return err
	}
	last(length, done)
	return signal(syscall.SIGCONT)
}

func (i *Injector) playProgram(ctx context.Context, done <-chan struct{}, s Step) error {
	if s.Kind == Pause {
		return pause(func(signal syscall.Signal) error { return i.Cluster.Signal(s.Target, signal) }, s.Length, done)
	}
	if err := i.Cluster.Signal(s.Target, syscall.SIGKILL); err != nil {
		return err
	}
	if err := i.Cluster.Gone(ctx, s.Target); err != nil {
		return err
	}
	last(s.Length, done)
	if err := i.Cluster.Start(ctx, s.Target); err != nil {
		return err
	}
	if err := i.Cluster.Ready(ctx); err != nil {
		return fmt.Errorf("after %s was started again: %w", s.Target, err)
	}
	return nil
}

// RevivePrograms starts programs that have ended by themselves, as the service manager of a machine would, until the
// context ends. A kubelet ends if its containerd is away when it starts, and a scheduler or controller manager when it loses its lease.
func (i *Injector) RevivePrograms(ctx context.Context, nodes []string) {
	for _, program := range slices.Concat(programs(nodes, "-containerd"), programs(nodes, "-kubelet"), []string{"kube-controller-manager", "kube-scheduler"}) {
		go func() {
			_ = wait.PollUntilContextCancel(ctx, 2*time.Second, false, func(ctx context.Context) (bool, error) {
				lock := i.lock(program)
				lock.Lock()
				defer lock.Unlock()
				if !i.Cluster.Runs(program) && ctx.Err() == nil {
					if err := i.Cluster.Start(ctx, program); err != nil {
						log.Print(err)
					}
				}
				return false, nil
			})
		}()
	}
}

// Revive starts managers that have ended by themselves, as a kubelet would, until the context ends. A manager
// ends when it loses its lease.
func (i *Injector) Revive(ctx context.Context) {
	for _, m := range i.Managers {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-m.Ended():
				}
				lock := i.lock(m.Name)
				lock.Lock()
				select {
				case <-m.Ended(): // nobody else has started it
					if err := m.Start(0); err != nil {
						log.Printf("Manager %s: %v", m.Name, err)
					}
				default:
				}
				lock.Unlock()
			}
		}()
	}
}
