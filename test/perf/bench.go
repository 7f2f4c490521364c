package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/afloat-project/afloat/test/perf/fastserver"
)

const (
	// ours is the namespace of objects that the manager manages, others that of all other objects.
	ours, others = "perf", "perf-bare"
	// bareAgent is the user agent of the bare client; everything else that the harness does has another one,
	// which it begins with.
	bareAgent, harnessAgent = "afloat-perf-bare", "afloat-perf"
)

// bench has what scenarios use.
type bench struct {
	kube    kubernetes.Interface
	bare    kubernetes.Interface
	sets    *sets
	manager *manager
	audit   string
	agent   string
	cluster string
	report  *report
	// guarded: the set has a PodUnavailableBudget.
	guarded bool
	// server takes the place of a cluster in scenario fast.
	server *fastserver.Server
}

// log returns a log of what clients write from now on.
func (b *bench) log() (writeLog, error) {
	if b.server != nil {
		return &servedWrites{b.server, b.server.Written()}, nil
	}
	log := &auditLog{path: b.audit}
	return log, log.skip()
}

// load returns how busy the machine is.
func (b *bench) load() load {
	pid := 0
	if b.manager != nil {
		pid = b.manager.pid
	}
	return readLoad(b.cluster, pid)
}

func newBench(ctx context.Context, r *report) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	config.QPS = -1
	config.UserAgent = harnessAgent
	b := &bench{report: r, audit: os.Getenv("AUDIT_LOG"), agent: os.Getenv("PERF_AGENT"), cluster: os.Getenv("CLUSTER")}
	if b.agent == "" {
		b.agent = "kruise-manager"
	}
	if b.kube, err = typed(config, harnessAgent); err != nil {
		return nil, err
	}
	if b.bare, err = typed(config, bareAgent); err != nil {
		return nil, err
	}
	version, err := b.kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
	}
	r.Machine.Kubernetes = version.GitVersion
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if b.sets, err = findSets(ctx, client, cloneSets); err != nil {
		return nil, err
	}
	for _, name := range []string{ours, others} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := b.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("the cluster must be fresh: %w", err)
		}
		// Pods can be made once their service account exists.
		if err := poll(ctx, "namespace "+name, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
			_, err := b.kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, nil
		}); err != nil {
			return nil, err
		}
	}
	b.manager, err = newManager()
	return b, err
}

func typed(config *rest.Config, agent string) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = agent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// startManager starts the manager and waits until it is ready and its webhooks accept CloneSets.
func (b *bench) startManager(ctx context.Context) error {
	if err := b.manager.start(ctx); err != nil {
		return err
	}
	if err := poll(ctx, "the manager becomes ready", 20*time.Millisecond, b.manager.isReady); err != nil {
		return err
	}
	return poll(ctx, "CloneSets are admitted", 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		if !b.manager.alive() {
			return false, errors.New("the manager ended")
		}
		return b.sets.admitted(ctx) == nil, nil
	})
}

// step does something with pods and returns when it began and ended.
type step func(ctx context.Context) (begin, end time.Time, err error)

// bareStep measures what the bare client does.
func (b *bench) bareStep(ctx context.Context, name string, pods int, do step) (*phase, error) {
	log, err := b.log()
	if err != nil {
		return nil, err
	}
	cluster, err := b.log()
	if err != nil {
		return nil, err
	}
	busy := b.load()
	begin, end, err := do(ctx)
	now := b.load()
	if err != nil {
		return nil, fmt.Errorf("bare client: %s: %w", name, err)
	}
	var w writes
	if err := log.read(&w, bareAgent+`"`); err != nil {
		return nil, err
	}
	p := &phase{Name: name, Bare: true, Pods: pods, Others: now.others(busy), Programs: now.perPod(busy, pods)}
	if p.Lost, err = lostPods(cluster); err != nil {
		return nil, err
	}
	p.fill(begin, end, w)
	b.add(p)
	return p, nil
}

// managerStep measures what the manager does, until it has nothing to write any more.
func (b *bench) managerStep(ctx context.Context, name string, pods int, do step) (*phase, error) {
	log, err := b.log()
	if err != nil {
		return nil, err
	}
	cluster, err := b.log()
	if err != nil {
		return nil, err
	}
	cpu, err := b.manager.cpu()
	if err != nil {
		return nil, err
	}
	before, err := b.manager.metrics(ctx)
	if err != nil {
		return nil, err
	}
	b.manager.resetPeak()
	busy := b.load()
	begin, end, err := do(ctx)
	now := b.load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	w, err := b.quiet(ctx, log)
	if err != nil {
		return nil, err
	}
	p := &phase{Name: name, Pods: pods, Others: now.others(busy), Programs: now.perPod(busy, pods)}
	if p.Lost, err = lostPods(cluster); err != nil {
		return nil, err
	}
	p.fill(begin, end, w)
	after, err := b.manager.cpu()
	if err != nil {
		return nil, err
	}
	p.CPU = after - cpu
	p.CPUPerPod = 1000 * p.CPU / float64(max(pods, 1))
	m, err := b.manager.memory()
	if err != nil {
		return nil, err
	}
	p.Memory = &m
	if before != nil {
		counted, err := b.manager.metrics(ctx)
		if err != nil {
			return nil, err
		}
		p.Requests, p.Reconciles = counted.minus(before), counted.reconciles-before.reconciles
	}
	b.add(p)
	return p, nil
}

// quiet waits until the manager has written nothing for a while, and returns what it wrote.
func (b *bench) quiet(ctx context.Context, log writeLog) (writes, error) {
	const still = 2 * time.Second
	var w writes
	last, since := -1, time.Now()
	err := poll(ctx, "the manager comes to rest", 250*time.Millisecond, func(context.Context) (bool, error) {
		if err := log.read(&w, b.agent); err != nil {
			return false, err
		}
		if n := w.total(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) >= still, nil
	})
	return w, err
}

// lostPods counts the pods that the cluster itself took out of service, because it had not heard of their
// nodes for too long. If there are any, the figures are not those of the manager alone.
func lostPods(log writeLog) (int, error) {
	var w writes
	err := log.read(&w, "kube-controller-manager/")
	return w.done["update pods/status"] + w.done["patch pods/status"], err
}

func (p *phase) fill(begin, end time.Time, w writes) {
	p.Seconds = end.Sub(begin).Seconds()
	p.PodsPerSecond = float64(p.Pods) / p.Seconds
	p.Writes, p.Refused = w.done, w.refused
	p.PodWrites = float64(w.pods()) / float64(max(p.Pods, 1))
}

func (b *bench) add(p *phase) {
	b.report.Phases = append(b.report.Phases, p)
	b.report.disturbed(p)
	by := "manager"
	if p.Bare {
		by = "bare client"
	}
	fmt.Printf("  %-12s %-28s %5d pods %7.1f s %7.1f pods/s %5.2f pod writes per pod", by, p.Name, p.Pods, p.Seconds, p.PodsPerSecond,
		p.PodWrites)
	if p.Memory != nil {
		fmt.Printf(" %6.2f CPU ms per pod, %.0f MiB, peak %.0f MiB, %.0f reconciles", p.CPUPerPod, p.Memory.RSS, p.Memory.Peak,
			p.Reconciles)
	}
	fmt.Printf(", others used %.0f %% of the machine\n    CPU ms per pod: %s\n", 100*p.Others, counts(p.Programs))
}
