// Package faults chooses faults from a seed, and injects them.
package faults

import (
	"math/rand/v2"
	"time"
)

// Kinds of faults. Those of the network between a manager and the API server are in package proxy, and have
// the same names here.
const (
	// Kill ends a program at once; it is started again.
	Kill = "kill"
	// Pause stops a program, and lets it go on where it was.
	Pause = "pause"
	// Restart asks a manager to end, and starts it again.
	Restart = "restart"
	// Clock starts a manager again, with a clock that differs from that of the machine.
	Clock = "clock"
	// Overlap pauses the leader for longer than its lease, and holds back what it has sent: two managers
	// write.
	Overlap = "overlap"
	// WebhookSlow and WebhookFails are what a webhook of somebody else does to creations and updates of pods.
	WebhookSlow  = "webhook-slow"
	WebhookFails = "webhook-fails"
	// DeletePod and EvictPod are what users and drains do to a pod.
	DeletePod = "delete-pod"
	EvictPod  = "evict-pod"
	// Crash ends the main process of a container at once.
	Crash = "crash"
)

// Step is a fault that is to be injected.
type Step struct {
	Kind   string
	Target string
	// At is when it begins, after the begin of the run. Length is how long it lasts.
	At, Length time.Duration
	// Share is the share of requests that it touches, if it is one of the network.
	Share float64
	// Delay is how long Slow delays at most, or how far Clock shifts.
	Delay time.Duration
	// Choice chooses among the pods of the moment.
	Choice uint64
}

// choice is a kind of fault with what it may hit, how often it comes, and how many seconds it lasts.
type choice struct {
	kind        string
	targets     []string
	weight      int
	least, most int
	share       float64
}

// Targets that are not programs.
const (
	leader  = "leader"
	webhook = "webhook"
	pods    = "pods"
	// daemonOf is the end of the target that is the node daemon of a node, networkOf of that between a node and the API server.
	daemonOf  = "-daemon"
	networkOf = "-network"
)

// choices are all kinds of faults. A fault of the control plane hits everybody, so that most are elsewhere. The nodes
// are those that are real; without any, simulated ones play them.
func choices(clocks bool, nodes []string) []choice {
	others := []string{"kube-controller-manager", "kube-scheduler", "kwok"}
	if len(nodes) > 0 {
		others = others[:2]
	}
	managers, both := []string{"a", "b"}, []string{"a", "b", leader, leader}
	all := []choice{
		{kind: Kill, targets: both, weight: 7, least: 0, most: 4},
		{kind: Restart, targets: both, weight: 3, least: 0, most: 2},
		{kind: Pause, targets: both, weight: 5, least: 1, most: 9},
		{kind: Overlap, targets: []string{leader}, weight: 2, least: 17, most: 24},
		{kind: Kill, targets: []string{"kube-apiserver"}, weight: 2, least: 0, most: 3},
		{kind: Pause, targets: []string{"kube-apiserver"}, weight: 3, least: 1, most: 8},
		{kind: Kill, targets: []string{"etcd"}, weight: 2, least: 0, most: 3},
		{kind: Pause, targets: []string{"etcd"}, weight: 3, least: 1, most: 6},
		{kind: Kill, targets: others, weight: 2, most: 4},
		{kind: Pause, targets: others, weight: 4, least: 1, most: 9},
		{kind: "slow", targets: managers, weight: 7, least: 3, most: 14},
		{kind: "cut", targets: both, weight: 7, least: 1, most: 13},
		{kind: "stall", targets: both, weight: 5, least: 1, most: 13},
		{kind: "lose-answers", targets: []string{leader}, weight: 9, least: 1, most: 8, share: 0.6},
		{kind: "gone", targets: both, weight: 6, least: 0, most: 3},
		{kind: "too-many-requests", targets: both, weight: 5, least: 1, most: 8, share: 0.6},
		{kind: "internal-error", targets: both, weight: 5, least: 1, most: 8, share: 0.6},
		{kind: "gateway-timeout", targets: both, weight: 6, least: 1, most: 8, share: 0.6},
		{kind: "hold-writes", targets: both, weight: 5, least: 1, most: 9},
		{kind: WebhookSlow, targets: []string{webhook}, weight: 4, least: 2, most: 9},
		{kind: WebhookFails, targets: []string{webhook}, weight: 4, least: 2, most: 9},
		{kind: DeletePod, targets: []string{pods}, weight: 4},
		{kind: EvictPod, targets: []string{pods}, weight: 4},
	}
	if clocks {
		all = append(all, choice{kind: Clock, targets: managers, weight: 3, least: 0, most: 2})
	}
	if len(nodes) > 0 {
		all = append(all,
			choice{kind: Kill, targets: programs(nodes, "-kubelet"), weight: 10, least: 0, most: 8},
			choice{kind: Pause, targets: programs(nodes, "-kubelet"), weight: 8, least: 1, most: 12},
			choice{kind: Kill, targets: programs(nodes, "-containerd"), weight: 12, least: 0, most: 5},
			choice{kind: Kill, targets: programs(nodes, daemonOf), weight: 14},
			choice{kind: Pause, targets: programs(nodes, daemonOf), weight: 12, least: 1, most: 12},
			choice{kind: "slow", targets: programs(nodes, networkOf), weight: 4, least: 3, most: 14},
			choice{kind: "cut", targets: programs(nodes, networkOf), weight: 8, least: 1, most: 20},
			choice{kind: "stall", targets: programs(nodes, networkOf), weight: 6, least: 1, most: 20},
			// So long that the node counts as lost, and its pods as not ready.
			choice{kind: "cut", targets: programs(nodes, networkOf), weight: 3, least: 55, most: 80},
			choice{kind: Crash, targets: []string{pods}, weight: 16})
	}
	return all
}

// programs are those of nodes.
func programs(nodes []string, of string) []string {
	var all []string
	for _, node := range nodes {
		all = append(all, node+of)
	}
	return all
}

// Plan chooses the faults of a run: perHour of them, at random times. The same seed, length and rate give the
// same plan; perHour 0 gives none. Where a fault would hit what another one has not left yet, it is one of another kind.
func Plan(seed uint64, length time.Duration, perHour int, clocks bool, nodes []string) []Step {
	if perHour <= 0 {
		return nil
	}
	draw := rand.New(rand.NewPCG(seed, 0xfa)) //nolint:gosec // chance that can be repeated
	gap := time.Hour / time.Duration(perHour)
	all := choices(clocks, nodes)
	total := 0
	for _, c := range all {
		total += c.weight
	}

	var plan []Step
	busy := map[string]time.Duration{}
	for at := time.Duration(0); at < length; at += gap/2 + rand64(draw, gap) {
		for {
			c := pick(draw, all, total)
			s := Step{Kind: c.kind, Target: c.targets[draw.IntN(len(c.targets))], At: at, Share: c.share,
				Choice: draw.Uint64()}
			s.Length = time.Duration(c.least)*time.Second +
				rand64(draw, time.Duration(c.most-c.least)*time.Second)
			s.Delay = 100*time.Millisecond + rand64(draw, 2900*time.Millisecond)
			if s.Kind == Clock {
				s.Delay = time.Duration(draw.IntN(40)-20) * time.Second
				if s.Delay >= 0 { // each clock is off
					s.Delay += time.Second
				}
			}
			if busy[s.Target] > at {
				continue
			}
			busy[s.Target] = at + s.Length
			// Pods are not left: they are hit again and again.
			plan = append(plan, s)
			break
		}
	}

	return plan
}

func rand64(draw *rand.Rand, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(draw.Int64N(int64(most)))
}

func pick(draw *rand.Rand, all []choice, total int) choice {
	n := draw.IntN(total)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	return all[len(all)-1]
}
