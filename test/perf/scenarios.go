package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// scenario is one thing to be measured.
type scenario struct {
	name, about string
	// local: needs no cluster.
	local bool
	// nodes is how many simulated nodes its cluster has; 0 means 25.
	nodes int
	run   func(context.Context, *bench) error
}

func scenarios() []scenario {
	all := []scenario{
		{name: "planner", about: "Plans of one CloneSet, without a cluster: time and allocations.", local: true, run: planner},
		{name: "ceiling", about: "The bare client alone: what this cluster takes from a client that does nothing but the writes.",
			run: func(ctx context.Context, b *bench) error { return ceilingAlone(ctx, b, 1000, 100, 10) }},
		{name: "ceiling-5000", about: "The bare client alone with 5000 pods: whether the cluster itself is slower with more pods.",
			run: func(ctx context.Context, b *bench) error { return ceilingAlone(ctx, b, 5000, 10) }},
	}
	for _, n := range []int{100, 1000, 5000} {
		all = append(all,
			scenario{name: fmt.Sprintf("cloneset-%d", n), run: func(ctx context.Context, b *bench) error { return oneSet(ctx, b, n, 100) },
				about: fmt.Sprintf(
					"One CloneSet of %d pods: scaled up from nothing, updated in place at maxUnavailable 100 %%, scaled down to nothing.",
					n)},
			scenario{name: fmt.Sprintf("budget-%d", n), run: func(ctx context.Context, b *bench) error { return oneSet(ctx, b, n, 10) },
				about: fmt.Sprintf(
					"One CloneSet of %d pods: scaled up from nothing, updated in place at maxUnavailable 10 %%, scaled down to nothing.",
					n)})
	}
	return append(all,
		scenario{name: "fast",
			about: "One CloneSet of 1,000 pods, then 100 of 10, created and updated in place at maxUnavailable 100 %, on an API server " +
				"of the benchmark's own that answers in 1 ms and costs next to no CPU: what holds the manager back is the manager.", local: true, run: fast},
		scenario{name: "scale",
			about: "100,000 pods in 2,000 CloneSets in 200 namespaces on 5,000 nodes, in slices, on the API server of scenario fast: " +
				"what of the manager grows how.", local: true, run: scale},
		scenario{name: "fairness",
			about: "A CloneSet of 5 pods is created and updated while others have much to do: one of 5,000 pods, 2,000 of one pod each; " +
				"on the API server of scenario fast.", local: true, run: fairness},
		scenario{name: "paced-1000",
			about: "One CloneSet of 1000 pods whose containers take 5 to 15 s to restart, updated in place at maxUnavailable 10 %: " +
				"the pace is that of the pods, not that of the API server.", run: paced},
		scenario{name: "guarded-1000",
			about: "budget-1000 with a PodUnavailableBudget of the same 10 % besides, in which each pod is booked before it is touched.", run: guarded},
		scenario{name: "statefulset-1000",
			about: "One StatefulSet of 1000 pods under Parallel: created, updated in place at maxUnavailable 100 %, scaled down to nothing; " +
				"then one of 50 pods under OrderedReady, created and updated one after the other.", run: statefulSets},
		scenario{name: "daemonset-5000", nodes: 5000,
			about: "One DaemonSet on 5,000 nodes: created, updated in place at maxUnavailable 10 %; then a label of every fifth node changes.",
			run:   daemonSetOn5000},
		scenario{name: "broadcastjob-5000", nodes: 5000,
			about: "One BroadcastJob on 5,000 nodes: its pods are created and start; then a label of every fifth node changes.", run: broadcastJobOn5000},
		scenario{name: "resourcedistribution-10000",
			about: "A ConfigMap to 10,000 namespaces: created, changed; then 19 more, and events of single namespaces. Pods are copies here.",
			run:   distributeTo10000},
		scenario{name: "many", about: "200 CloneSets of 25 pods, all updated in place at once.", run: manySets},
		scenario{name: "start", about: "Start of the manager in a cluster with 10,000 pods, 2,000 of them of CloneSets: time and memory.",
			run: startUp},
		scenario{name: "rest", about: "5,000 pods of CloneSets at rest for one minute, then events of single pods.", run: atRest},
		scenario{name: "admission", about: "What webhooks add to the creation of pods.", run: admission},
		scenario{name: "evictions", about: "100 evictions a second of pods of 50 PodUnavailableBudgets, and of pods without one.", run: evictions},
	)
}

// ceiling measures the bare client with n pods: creation, update with at most percent of the pods out of
// service, deletion.
func ceiling(ctx context.Context, b *bench, n, percent int) error {
	return ceilingOf(ctx, b, "", n, percent)
}

// ceilingOf is like ceiling; the names of its steps begin with what.
func ceilingOf(ctx context.Context, b *bench, what string, n, percent int) error {
	n = min(n, 1000)
	c, end, err := b.startBare(ctx)
	if err != nil {
		return err
	}
	defer end()
	if b.sets != nil {
		c.annotations = b.sets.annotations
	}
	if _, err := b.bareStep(ctx, what+stepCreate, n,
		func(ctx context.Context) (time.Time, time.Time, error) { return c.create(ctx, n, images[0]) }); err != nil {
		return err
	}
	if err := bareUpdate(ctx, b, c, what+updateStep(percent), n, percent, images[1]); err != nil {
		return err
	}
	_, err = b.bareStep(ctx, what+stepDelete, n, func(ctx context.Context) (time.Time, time.Time, error) { return c.remove(ctx, n) })
	return err
}

func bareUpdate(ctx context.Context, b *bench, c *bareClient, name string, n, percent int, image string) error {
	budget := budgetOf(n, percent)
	var use *budgetUse
	p, err := b.bareStep(ctx, name, n, func(ctx context.Context) (begin, end time.Time, err error) {
		c.pods.watchBudget(n, budget, image)
		begin, end, err = c.update(ctx, n, budget, image)
		use = c.pods.endBudget()
		return begin, end, err
	})
	if err == nil {
		p.Budget = use
	}
	return err
}

const (
	stepCreate = "create"
	stepDelete = "scale to 0"
)

func updateStep(percent int) string { return fmt.Sprintf("update in place, %d %%", percent) }

// budgetOf rounds up, as maxUnavailable does.
func budgetOf(n, percent int) int { return (n*percent + 99) / 100 }

// ceilingAlone measures the bare client with n pods, updated once for each share that may be out of service.
func ceilingAlone(ctx context.Context, b *bench, n int, percents ...int) error {
	c, end, err := b.startBare(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := b.bareStep(ctx, stepCreate, n,
		func(ctx context.Context) (time.Time, time.Time, error) { return c.create(ctx, n, images[0]) }); err != nil {
		return err
	}
	for i, percent := range percents {
		if err := bareUpdate(ctx, b, c, updateStep(percent), n, percent, images[i+1]); err != nil {
			return err
		}
	}
	if _, err = b.bareStep(ctx, stepDelete, n,
		func(ctx context.Context) (time.Time, time.Time, error) { return c.remove(ctx, n) }); err == nil {
		judgeBare(b.report, n, percents)
	}
	return err
}

// judgeBare compares the bare client with 5,000 pods with the stored report of 1,000: if it is slower, the
// reason is the cluster.
func judgeBare(r *report, n int, percents []int) {
	small := readReport(os.Getenv("PERF_REPORTS"), "ceiling")
	if n != 5000 || small == nil {
		return
	}
	for _, percent := range percents {
		for _, step := range []string{stepCreate, updateStep(percent)} {
			if p, q := r.find(step, true), small.find(step, true); p != nil && q != nil {
				r.figure(step+", time of 5,000 pods to that of 1,000", p.Seconds/q.Seconds, "times")
			}
		}
	}
}

// oneSet measures the life of one CloneSet of n pods, of which at most percent may be out of service.
func oneSet(ctx context.Context, b *bench, n, percent int) error {
	if err := ceiling(ctx, b, n, percent); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if b.guarded {
		if err := b.apply(ctx, "policy.kruise.io/v1beta1", "podunavailablebudgets", ours, `{apiVersion: policy.kruise.io/v1beta1,
			kind: PodUnavailableBudget, metadata: {name: web}, spec: {targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}, maxUnavailable: 10%}}`,
			nil); err != nil {
			return err
		}
	}
	m, err := b.manager.memory()
	if err != nil {
		return err
	}
	b.report.figure("memory of the manager before any pod, RSS", m.RSS, "MiB")
	b.report.atMost("memory after start", m.RSS, 60, "MiB")
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return err
	}
	defer pods.close()
	const name = "web"
	if _, err := b.managerStep(ctx, stepCreate, n, func(ctx context.Context) (begin, end time.Time, err error) {
		ready := pods.expect("", func() bool { return pods.serving[images[0]] == n })
		begin = time.Now()
		if err := b.sets.create(ctx, name, n, fmt.Sprintf("%d%%", percent)); err != nil {
			return begin, end, err
		}
		if end, err = pods.wait(ctx, "pods become ready", ready); err == nil {
			err = b.sets.settled(ctx, name, n)
		}
		return begin, end, err
	}); err != nil {
		return err
	}
	if b.guarded {
		if err := b.counted(ctx, ours, n); err != nil {
			return err
		}
	}
	if err := measureUpdate(ctx, b, pods, []string{name}, n, percent, images[1]); err != nil {
		return err
	}
	if _, err := b.managerStep(ctx, stepDelete, n, func(ctx context.Context) (begin, end time.Time, err error) {
		gone := pods.expect("", func() bool { return len(pods.pods) == 0 })
		begin = time.Now()
		if err := b.sets.scale(ctx, name, 0); err != nil {
			return begin, end, err
		}
		if end, err = pods.wait(ctx, "pods end", gone); err == nil {
			err = b.sets.settled(ctx, name, 0)
		}
		return begin, end, err
	}); err != nil {
		return err
	}
	judge(b.report, b.sets.kind, percent)
	judgeGrowth(b.report, n, percent)
	return nil
}

// paced measures a rollout that waits for the pods: it shows how much of the budget the manager keeps in use.
func paced(ctx context.Context, b *bench) error {
	b.sets.annotations = map[string]string{"afloat.dev/simulated-restart": "5s", "afloat.dev/simulated-restart-at-most": "15s"}
	return oneSet(ctx, b, 1000, 10)
}

// measureUpdate moves all pods of the sets in place to an image; it is an error if a pod is replaced, or if
// more pods than the budget are out of service.
func measureUpdate(ctx context.Context, b *bench, pods *observer, names []string, n, percent int, image string) error {
	return updateSets(ctx, b, pods, updateStep(percent), b.report.Scenario, names, n, percent, image)
}

// updateSets is measureUpdate as a step of that name, with profiles of that name.
func updateSets(ctx context.Context, b *bench, pods *observer, name, profile string, names []string, n, percent int, image string) error {
	budget := budgetOf(n, percent)
	var use *budgetUse
	before := pods.snapshot()
	p, err := b.managerStep(ctx, name, n, func(ctx context.Context) (begin, end time.Time, err error) {
		profiled, err := b.manager.profile(ctx, profile)
		if err != nil {
			return begin, end, err
		}
		done := pods.expect("", func() bool { return pods.serving[image] == n })
		pods.watchBudget(n, budget, image)
		begin = time.Now()
		if err := each(len(names), func(i int) error { return b.sets.image(ctx, names[i], image) }); err != nil {
			return begin, end, err
		}
		if end, err = pods.wait(ctx, "pods are updated", done); err != nil {
			return begin, end, err
		}
		use = pods.endBudget()
		if err := each(len(names), func(i int) error { return b.sets.settled(ctx, names[i], n/len(names)) }); err != nil {
			return begin, end, err
		}
		return begin, end, profiled()
	})
	if err != nil {
		return err
	}
	p.Budget = use
	for name, now := range pods.snapshot() {
		if was, ok := before[name]; !ok || was.uid != now.uid || now.restarts != was.restarts+1 {
			return fmt.Errorf("pod %s was not updated in place: before %+v, after %+v", name, was, now)
		}
	}
	if use.Most > budget {
		return fmt.Errorf(
			"budget violated: %d of %d pods were out of service at once, %d may be (the cluster itself took pods out of service %d times)",
			use.Most, n, budget, p.Lost)
	}
	fmt.Printf("  most %d of %d out of service at once, in use %.0f %% on average, a pod %.1f s\n", use.Most, budget, 100*use.Mean,
		use.Down)
	return nil
}

// judge compares creation and updates with their targets.
func judge(r *report, of kind, percent int) {
	if p, bare := r.find(stepCreate, false), r.find(stepCreate, true); p != nil && bare != nil {
		r.atLeast("creation, part of the ceiling", 100*p.PodsPerSecond/bare.PodsPerSecond, 95, "%")
		r.atMost("creation, pod writes per pod", p.PodWrites, 2.1, "")
	}
	name := updateStep(percent)
	p, bare := r.find(name, false), r.find(name, true)
	if p == nil || bare == nil {
		return
	}
	if percent == 100 {
		r.atLeast("update, part of the ceiling", 100*p.PodsPerSecond/bare.PodsPerSecond, of.promised, "%")
	} else {
		r.atLeast("update, budget in use on average until every pod has begun", 100*p.Budget.Mean, 90, "%")
		r.atLeast("update, budget in use, part of what the bare client has in use", 100*p.Budget.Mean/bare.Budget.Mean, 90, "%")
		r.note("With the same budget the bare client, which knows of every pod at once, uses %.0f %% of it and updates %.1f pods/s.",
			100*bare.Budget.Mean, bare.PodsPerSecond)
	}
	r.atMost("update, pod writes per pod", p.PodWrites, 3, "")
	r.atMost("update, manager CPU per pod", p.CPUPerPod, 1.5, "ms")
	r.atMost("update, pods out of service", float64(p.Budget.Most), float64(p.Budget.Budget), "")
}

// judgeGrowth compares 5,000 pods with the stored report of 1,000.
func judgeGrowth(r *report, n, percent int) {
	if n != 5000 {
		return
	}
	name := "cloneset-1000"
	if percent != 100 {
		name = "budget-1000"
	}
	dir := os.Getenv("PERF_REPORTS")
	small := readReport(dir, name)
	if small == nil {
		r.note("Growth is judged beside the report of %s, which was not there.", name)
		return
	}
	for _, step := range []string{stepCreate, updateStep(percent)} {
		p, q := r.find(step, false), small.find(step, false)
		if p == nil || q == nil {
			continue
		}
		r.atMost(step+", time of 5,000 pods to that of 1,000", p.Seconds/q.Seconds, 6, "times")
		r.atMost(step+", CPU per pod of 5,000 pods to that of 1,000", p.CPUPerPod/q.CPUPerPod, 1.2, "times")
	}
}

// manySets measures 200 CloneSets that are created, then updated, all at once.
func manySets(ctx context.Context, b *bench) error {
	const count, size = 200, 25
	if err := ceiling(ctx, b, 1000, 100); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	pods, names, err := manyPods(ctx, b, count, size)
	if err != nil {
		return err
	}
	defer pods.close()
	if err := measureUpdate(ctx, b, pods, names, count*size, 100, images[1]); err != nil {
		return err
	}
	judge(b.report, b.sets.kind, 100)
	return nil
}

// manyPods makes CloneSets of the same size and waits for their pods.
func manyPods(ctx context.Context, b *bench, count, size int) (*observer, []string, error) {
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("web-%03d", i)
	}
	if err := createSets(ctx, b, pods, stepCreate, names, size); err != nil {
		pods.close()
		return nil, nil, err
	}
	return pods, names, nil
}

// createSets measures the creation of sets of the same size, as a step of that name.
func createSets(ctx context.Context, b *bench, pods *observer, name string, names []string, size int) error {
	return createWith(ctx, b, pods, name, names, size, "100%")
}

// createWith is createSets with a maxUnavailable of the sets.
func createWith(ctx context.Context, b *bench, pods *observer, name string, names []string, size int, unavailable string) error {
	n := len(names) * size
	_, err := b.managerStep(ctx, name, n, func(ctx context.Context) (begin, end time.Time, err error) {
		ready := pods.expect("", func() bool { return pods.serving[images[0]] == n })
		begin = time.Now()
		if err := each(len(names), func(i int) error { return b.sets.create(ctx, names[i], size, unavailable) }); err != nil {
			return begin, end, err
		}
		if end, err = pods.wait(ctx, "pods become ready", ready); err == nil {
			err = each(len(names), func(i int) error { return b.sets.settled(ctx, names[i], size) })
		}
		return begin, end, err
	})
	return err
}
