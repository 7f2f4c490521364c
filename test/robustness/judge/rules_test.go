package judge

import (
	"fmt"
	"slices"
	"testing"
)

const (
	cloneSpec    = `"replicas":3,"selector":{"matchLabels":{"app":"web"}},"updateStrategy":{"rollingUpdate":{"maxUnavailable":1,"partition":2}}`
	statefulSpec = `"replicas":3,"updateStrategy":{"rollingUpdate":{"maxUnavailable":1,"partition":2}}`
)

// clones tells of a CloneSet with three pods of the first of two revisions.
func clones(s *story) {
	s.set("clonesets", "web", cloneSpec, "")
	s.revisionOf("CloneSet", "web", "web-r1", 1)
	s.pods("CloneSet", "web", "web-r1", 3)
	s.revisionOf("CloneSet", "web", "web-r2", 2)
	s.later()
}

// stateful tells the same of a StatefulSet.
func stateful(s *story) {
	s.set("statefulsets", "db", statefulSpec, "")
	s.revisionOf("StatefulSet", "db", "db-r1", 1)
	s.pods("StatefulSet", "db", "db-r1", 3)
	s.revisionOf("StatefulSet", "db", "db-r2", 2)
	s.later()
}

func clone(i int) pod {
	return pod{kind: "CloneSet", workload: "web", name: fmt.Sprintf("web-%d", i), node: fmt.Sprintf("n%d", i), revision: "web-r1"}
}

func down(i int) pod {
	p := clone(i)
	p.ready = "False"
	return p
}

// sidecarSet tells of a SidecarSet of the pods of the CloneSet.
func sidecarSet(s *story) {
	s.put("sidecarsets", "", "logs", `{"metadata":{"name":"logs","uid":"logs"},"spec":{"selector":{"matchLabels":{"app":"web"}},
		"containers":[{"name":"main","image":"app:2"}],"updateStrategy":{"maxUnavailable":1}}}`)
}

func going(i int) pod {
	p := clone(i)
	p.going = "yes"
	return p
}

func ofSet(i int) pod {
	return pod{kind: "StatefulSet", workload: "db", name: fmt.Sprintf("db-%d", i), node: fmt.Sprintf("n%d", i), revision: "db-r1"}
}

// Each rule has a record that violates it, and one that is nearly the same and does not.
func TestEachRuleSeesItsViolation(t *testing.T) {
	tellBothWays(t, map[string]bothWays{
		"a second pod is taken out of service": {&availability, func(s *story, violate bool) {
			clones(s)
			s.by("a.1", func() {
				s.pod(down(0))
				if !violate {
					s.pod(clone(0))
				}
				s.pod(down(1))
			})
		}},
		"a second pod is deleted": {&availability, func(s *story, violate bool) {
			stateful(s)
			s.by("a.1", func() {
				for i := range map[bool]int{true: 2, false: 1}[violate] {
					p := ofSet(i)
					p.going = "yes"
					s.pod(p)
				}
			})
		}},
		"a second node has no daemon": {&availability, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}`, "")
			s.pods("DaemonSet", "agent", "r1", 3)
			s.later()
			s.by("a.1", func() {
				for i := range map[bool]int{true: 2, false: 1}[violate] {
					s.pod(pod{kind: "DaemonSet", workload: "agent", name: fmt.Sprintf("agent-%d", i), node: fmt.Sprintf("n%d", i), ready: "False"})
				}
			})
		}},
		"a budget is overdrawn": {&budget, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3,"updateStrategy":{"rollingUpdate":{"maxUnavailable":3}}`, "")
			s.set("podunavailablebudgets", "web-budget", `"selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1`, "")
			s.pods("CloneSet", "web", "web-r1", 3)
			s.later()
			s.pod(going(0)) // by an eviction
			if violate {
				s.by("a.1", func() { s.pod(down(1)) })
			}
		}},
		"a budget is overdrawn by evictions": {&budget, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3`, "")
			s.set("podunavailablebudgets", "web-budget", `"selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1`, "")
			s.pods("CloneSet", "web", "web-r1", 3)
			s.later()
			s.pod(down(1)) // so says its node
			if violate {
				s.later()
			}
			for i := range map[bool]int{true: 1, false: 2}[violate] {
				s.pod(map[int]pod{0: going(0), 1: down(2)}[i])
			}
		}},
		"a pod too many is created": {&surge, func(s *story, violate bool) {
			clones(s)
			if !violate {
				s.pod(pod{kind: "CloneSet", workload: "web", name: "web-2", node: "n2", revision: "web-r1", phase: "Failed"})
			}
			s.by("a.1", func() { s.pod(clone(3)) })
		}},
		"a pod too many is updated": {&partition, func(s *story, violate bool) {
			clones(s)
			s.by("a.1", func() {
				for i := range map[bool]int{true: 2, false: 1}[violate] {
					p := clone(i)
					p.revision = "web-r2"
					s.pod(p)
				}
			})
		}},
		"a pod below the partition is updated": {&partition, func(s *story, violate bool) {
			stateful(s)
			p := ofSet(map[bool]int{true: 1, false: 2}[violate])
			p.revision = "db-r2"
			s.by("a.1", func() { s.pod(p) })
		}},
		"a pod is deleted without a reason": {&reason, func(s *story, violate bool) {
			clones(s)
			p := clone(0)
			if !violate {
				p.labels = `,"apps.kruise.io/specified-delete":"true"`
				s.pod(p)
			}
			p.going = "yes"
			s.by("a.1", func() { s.pod(p) })
		}},
		"an ordinal is none of the set's": {&ordinals, func(s *story, violate bool) {
			stateful(s)
			s.put("pods", "x", "db-2", "")
			s.by("a.1", func() { s.pod(ofSet(map[bool]int{true: 3, false: 2}[violate])) })
		}},
		"a low ordinal goes before a high one": {&condemned, func(s *story, violate bool) {
			stateful(s)
			s.set("statefulsets", "db", `"replicas":1`, "")
			s.later()
			p := ofSet(map[bool]int{true: 1, false: 2}[violate])
			p.going = "yes"
			s.by("a.1", func() { s.pod(p) })
		}},
		"a claim is deleted under a pod": {&claims, func(s *story, violate bool) {
			p := clone(0)
			p.claim = "data"
			if !violate {
				p.going = "yes"
			}
			s.pod(p)
			s.put("persistentvolumeclaims", "x", "data", `{"metadata":{"name":"data"}}`)
			s.by("a.1", func() { s.put("persistentvolumeclaims", "x", "data", "") })
		}},
		"a node has two daemons": {&onePodPerNode, func(s *story, violate bool) {
			surge := map[bool]string{true: "0", false: "1"}[violate]
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxSurge":`+surge+`}}`, "")
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-a", node: "n1"})
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-b", node: "n1"})
		}},
		"a node has three daemons, and none of them is going": {&onePodPerNode, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxSurge":1}}`, "")
			second := pod{kind: "DaemonSet", workload: "agent", name: "agent-b", node: "n1"}
			if !violate {
				second.going = "yes"
			}
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-a", node: "n1"})
			s.pod(second)
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-c", node: "n1"})
		}},
		"a second daemon comes beside one that is going": {&onePodPerNode, func(s *story, violate bool) {
			surge := map[bool]string{true: "0", false: "1"}[violate]
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxSurge":`+surge+`}}`, "")
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-a", node: "n1", going: "yes"})
			s.pod(pod{kind: "DaemonSet", workload: "agent", name: "agent-b", node: "n1"})
		}},
		"an instance ID is used twice": {&instances, func(s *story, violate bool) {
			s.set("clonesets", "web", cloneSpec, "")
			s.pod(pod{kind: "CloneSet", workload: "web", name: "web-a", id: "a"})
			s.pod(pod{kind: "CloneSet", workload: "web", name: "web-b", id: map[bool]string{true: "a", false: "b"}[violate]})
		}},
		"another container is restarted": {&inPlace, func(s *story, violate bool) {
			s.pod(clone(0))
			p := clone(0)
			p.restarts = 1
			if !violate {
				p.image = "app:2"
			}
			s.pod(p)
		}},
		"an image changes in service": {&outOfService, func(s *story, violate bool) {
			s.set("clonesets", "web", cloneSpec, "")
			p := clone(0)
			if !violate {
				p.ready = "False"
			}
			s.pod(p)
			p.image, p.runs = "app:2", "app:1"
			s.by("a.1", func() { s.pod(p) })
		}},
		"a second sidecar of pods that serve is changed": {&sidecars, func(s *story, violate bool) {
			sidecarSet(s)
			s.pod(clone(0))
			second := map[bool]pod{true: clone(1), false: down(1)}[violate]
			s.pod(second)
			s.by("a.1", func() {
				for _, p := range []pod{clone(0), second} {
					p.image, p.runs = "app:2", "app:1"
					s.pod(p)
				}
			})
		}},
		"a sidecar is changed beside one of a pod that served": {&sidecars, func(s *story, violate bool) {
			sidecarSet(s)
			first := map[bool]pod{true: clone(1), false: down(1)}[violate]
			s.pod(clone(0))
			s.pod(first)
			s.by("a.1", func() {
				for _, p := range []pod{first, clone(0)} {
					p.image, p.runs = "app:2", "app:1"
					s.pod(p)
				}
			})
		}},
		"a second sidecar is changed": {&sidecars, func(s *story, violate bool) {
			sidecarSet(s)
			s.pod(clone(0))
			s.pod(clone(1))
			s.by("a.1", func() {
				for i := range map[bool]int{true: 2, false: 1}[violate] {
					p := clone(i)
					p.image, p.runs = "app:2", "app:1"
					s.pod(p)
				}
			})
		}},
		"a job has too many pods": {&parallelism, func(s *story, violate bool) {
			s.set("broadcastjobs", "job", `"parallelism":2`, `"phase":"running"`)
			s.pods("BroadcastJob", "job", "", map[bool]int{true: 3, false: 2}[violate])
		}},
		"a subset has too many pods": {&quota, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3`, "")
			s.set("workloadspreads", "spread", `"subsets":[{"name":"first","maxReplicas":1},{"name":"second"}]`, "")
			for i := range 2 {
				p := clone(i)
				subset := map[bool]string{true: "first", false: "second"}[violate || i == 0]
				p.annotations = fmt.Sprintf(`"apps.kruise.io/matched-workloadspread":"{\"name\":\"spread\",\"subset\":\"%s\"}"`, subset)
				s.pod(p)
			}
		}},
		"a rollout does not end": {&converges, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3`, `"observedGeneration":104,"replicas":3,"readyReplicas":3,"updatedReplicas":3,"updateRevision":"web-r1"`)
			s.revisionOf("CloneSet", "web", "web-r1", 1)
			s.pods("CloneSet", "web", "web-r1", map[bool]int{true: 2, false: 3}[violate])
			s.ends()
		}},
		"a manager writes at rest": {&atRest, func(s *story, violate bool) {
			s.set("workloadspreads", "none", "", fmt.Sprintf(`"observedGeneration":%d`, s.revision))
			s.ends()
			if violate {
				s.by("a.1", func() { s.put("pods", "x", "other", `{"metadata":{"name":"other"}}`) })
			} else {
				s.lease("a.1")
			}
		}},
	})
}

func TestEveryRuleHasAViolation(t *testing.T) {
	names := map[string]bool{}
	for _, r := range rules() {
		if names[r.name] {
			t.Errorf("two rules are named %s", r.name)
		}
		names[r.name] = true
	}
}

// What others have taken away, and what users have just changed, may be unknown to a manager.
func TestAManagerLearnsLate(t *testing.T) {
	s := tell(t)
	clones(s)
	gone := clone(0)
	gone.going = "yes"
	s.pod(gone) // by a user
	s.by("a.1", func() { s.pod(down(1)) })
	if violations, _ := s.found(); len(violations) > 0 {
		t.Errorf("found %v", violations)
	}
	s.by("a.1", func() { s.pod(down(2)) })
	if violations, _ := s.found(); !slices.Contains(violations, availability.name) {
		t.Errorf("found %v", violations)
	}

	s = tell(t)
	clones(s)
	s.set("clonesets", "web", `"replicas":5,"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}`, "")
	s.by("a.1", func() { s.pod(down(1)) })
	if violations, _ := s.found(); len(violations) > 0 {
		t.Errorf("after a change of replicas: %v", violations)
	}
	s.later()
	s.by("a.1", func() { s.pod(down(2)) })
	if violations, _ := s.found(); !slices.Contains(violations, availability.name) {
		t.Errorf("long after a change of replicas: %v", violations)
	}
}

// Two managers that write at once may do things twice, and no more than that.
func TestWhatTwoManagersDoAtOnceIsKnown(t *testing.T) {
	s := tell(t)
	clones(s)
	s.lease("b.1")
	s.by("b.1", func() { s.pod(clone(3)) })
	if violations, known := s.found(); !slices.Contains(violations, surge.name) || len(known) > 0 {
		t.Errorf("the leader alone: violations %v, known %v", violations, known)
	}
	s.by("a.1", func() { s.pod(clone(4)) })
	if _, known := s.found(); !slices.Contains(known, surge.name) {
		t.Errorf("a manager without the lease: known %v", known)
	}
}

// A write whose answer nobody got is known by what it was about.
func TestAWriteWithoutAnAnswerHasAnAuthor(t *testing.T) {
	s := tell(t)
	clones(s)
	s.by("a.1", func() { s.pod(down(0)); s.pod(down(1)) })
	for i := range s.r.Requests {
		s.r.Requests[i].Status, s.r.Requests[i].Revision = 0, 0
	}
	if violations, _ := s.found(); !slices.Contains(violations, availability.name) {
		t.Errorf("found %v", violations)
	}
}
