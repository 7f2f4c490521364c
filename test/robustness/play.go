package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/afloat-project/afloat/test/robustness/cluster"
	"github.com/afloat-project/afloat/test/robustness/faults"
	"github.com/afloat-project/afloat/test/robustness/proxy"
	"github.com/afloat-project/afloat/test/robustness/record"
	"github.com/afloat-project/afloat/test/robustness/rollouts"
)

// stage is all that runs while a record is made.
type stage struct {
	options
	dir      string
	cluster  *cluster.Cluster
	record   *record.Writer
	managers []*cluster.Manager
	users    *rollouts.Rollouts
	webhook  *faults.Webhook
	// nodes are the real nodes, if there are any, and wires what is between each and the API server.
	nodes []string
	wires map[string]*proxy.Wire
}

// play plays rollouts and faults, and writes the record.
func play(ctx context.Context, o options, dir string) (err error) {
	s := &stage{options: o, dir: dir}
	if s.cluster, err = cluster.Open(o.kubeconfig, o.tool); err != nil {
		return err
	}
	if s.nodes, err = s.cluster.RealNodes(); err != nil {
		return err
	}
	defer func() {
		for _, wire := range s.wires {
			err = errors.Join(err, wire.Close())
		}
	}()
	s.wires = map[string]*proxy.Wire{}
	for _, node := range s.nodes {
		wire, err := s.cluster.Wire(ctx, node)
		if err != nil {
			return err
		}
		s.wires[node] = wire
	}
	if s.record, err = record.Create(filepath.Join(dir, recordName)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.record.Close()) }()

	s.record.Write(record.Line{Run: &record.Run{Seed: o.seed, Seconds: int(o.length.Seconds()), Commit: o.commit,
		Faults: len(s.plan()), Cores: runtime.NumCPU(), Clocks: o.clocks, Nodes: len(s.nodes), Begin: time.Now()}})
	following, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	followed, err := s.cluster.Follow(following, s.record)
	if err != nil {
		stopFollowing()
		return err
	}
	defer func() {
		stopFollowing()
		err = errors.Join(err, followed())
	}()

	background, stopBackground := context.WithCancel(ctx)
	defer func() {
		stopBackground() // so that nobody starts managers again
		s.stopManagers()
	}()
	if err := s.startManagers(ctx); err != nil {
		return err
	}
	go s.sample(background)
	if err := s.cluster.Publish(background, s.managers); err != nil {
		return err
	}
	if s.users, err = rollouts.New(ctx, s.cluster, s.record, o.seed, len(s.nodes) > 0); err != nil {
		return err
	}
	if err := s.cluster.NodesReady(ctx, s.nodes); err != nil {
		return err
	}
	s.webhook, err = faults.Serve(ctx, s.cluster, rollouts.Namespace, s.cluster.AuthorityFile())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.webhook.Close()) }()
	go s.users.FinishPods(background)
	if err := s.users.Create(ctx); err != nil {
		return err
	}
	log.Print("The workloads are made; faults begin")

	if err := s.injectAll(ctx, background); err != nil {
		return err
	}
	return errors.Join(s.settle(ctx), s.copyAudit())
}

// startManagers starts two managers, each behind a proxy.
func (s *stage) startManagers(ctx context.Context) error {
	certificate, err := s.cluster.Certificate()
	if err != nil {
		return err
	}
	authorities, err := s.cluster.Authorities()
	if err != nil {
		return err
	}
	for i, name := range []string{"a", "b"} {
		p, err := proxy.New(s.cluster.Server(), certificate, authorities, s.record)
		if err != nil {
			return err
		}
		m, err := s.cluster.NewManager(ctx, name, s.manager, filepath.Join(s.dir, "manager-"+name), p, 9876+i, 8000+i, 8080+i)
		if err != nil {
			return err
		}
		if err := m.Start(0); err != nil {
			return err
		}
		s.managers = append(s.managers, m)
	}
	for _, m := range s.managers {
		if err := m.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sample records what the managers and the node daemons take, until the context ends. One that does not answer has none.
func (s *stage) sample(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		for _, m := range s.managers {
			if sample, err := m.Sample(ctx); err == nil {
				s.record.Write(record.Line{Sample: sample})
			}
		}
		for _, node := range s.nodes {
			if sample, err := s.cluster.SampleDaemon(ctx, node); err == nil {
				s.record.Write(record.Line{Sample: sample})
			}
		}
		return false, nil
	})
}

// stopManagers ends the managers and their proxies.
func (s *stage) stopManagers() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, m := range s.managers {
		if err := errors.Join(m.Kill(ctx), m.Proxy.Close()); err != nil {
			log.Printf("Manager %s: %v", m.Name, err)
		}
	}
}

// injectAll plays rollouts, and injects the faults of the plan meanwhile.
func (s *stage) injectAll(ctx, background context.Context) error {
	s.phase(record.FaultsBegin)
	injector := &faults.Injector{Cluster: s.cluster, Managers: s.managers, Webhook: s.webhook, Pods: s.users,
		Record: s.record, Wires: s.wires}
	injector.Revive(background)
	reviving, stopReviving := context.WithCancel(background)
	defer stopReviving()
	injector.RevivePrograms(reviving, s.nodes)

	changing, stopChanging := context.WithCancel(ctx)
	var users sync.WaitGroup
	users.Go(func() { s.users.Play(changing) })
	end := time.After(s.length)
	injector.Run(ctx, s.plan())
	select {
	case <-end: // without faults, users alone
	case <-ctx.Done():
	}
	stopChanging()
	users.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// What could not be started again while another fault lasted is started now.
	if err := s.cluster.Repair(ctx); err != nil {
		return err
	}
	if err := s.users.Rest(ctx); err != nil {
		return err
	}
	s.phase(record.FaultsEnd)
	return nil
}

// plan returns the faults that are to be injected.
func (s *stage) plan() []faults.Step {
	return faults.Plan(s.seed, s.length, s.perHour, s.clocks, s.nodes)
}

func (s *stage) phase(name string) {
	log.Printf("Phase: %s", name)
	s.record.Write(record.Line{Phase: &record.Phase{Name: name, Time: time.Now()}})
}

// settle waits until nothing is written any more, and then watches that nothing is. If something is written
// all the time, the record has no rest, and the judge says so.
func (s *stage) settle(ctx context.Context) error {
	// Longer than places are booked, than controllers put off what failed, and than what was just accepted has rules of its own in
	// the webhook configuration: 90 seconds, and up to a minute until somebody looks.
	const quiet = 155 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, s.settleFor, errors.New("no rest"))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return context.Cause(ctx)
			}
			log.Printf("No rest was reached within %s", s.settleFor)
			return nil
		case <-tick.C:
		}
		if rested.IsZero() && time.Since(s.record.Moved()) > quiet {
			s.phase(record.RestBegins)
			rested = time.Now()
		}
		if !rested.IsZero() && time.Since(rested) > s.restedIn {
			s.phase(record.RestEnds)
			return nil
		}
	}
}

// copyAudit copies the audit log beside the record. It may lack what an API server had not written yet when
// it was killed, so that the judge does not need it; it is for people.
func (s *stage) copyAudit() error {
	from, err := os.Open(s.cluster.AuditLog())
	if err != nil {
		return fmt.Errorf("copying the audit log: %w", err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(s.dir, "audit.log"))
	if err != nil {
		return fmt.Errorf("copying the audit log: %w", err)
	}
	if _, err := io.Copy(to, from); err != nil {
		return errors.Join(fmt.Errorf("copying the audit log: %w", err), to.Close())
	}
	return to.Close()
}
