package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// request stores a ContainerRecreateRequest named again, for the container main of the pod web-0.
func (s *story) request(strategy, status, labels string) {
	s.put("containerrecreaterequests", "x", "again", fmt.Sprintf(`{"metadata":{"name":"again","namespace":"x","uid":"again",
		"creationTimestamp":"2026-01-01T00:00:00Z","labels":{%s}},"spec":{"podName":"web-0","activeDeadlineSeconds":60,"strategy":{%s},
		"containers":[{"name":"main","statusContext":{"containerID":"c://0","restartCount":0}}]},"status":{%s}}`, labels, strategy, status))
}

// runs stores the pod web-0 with a container that was restarted some times, and has its number in its ID.
func (s *story) runs(restarts int) {
	p := clone(0)
	p.restarts = restarts
	s.put("pods", "x", p.name, strings.Replace(p.object(), `"restartCount":`, fmt.Sprintf(`"containerID":"c://%d","state":{"running":{"startedAt":%q}},"restartCount":`,
		restarts, s.now.Format("2006-01-02T15:04:05Z")), 1))
}

const (
	over     = `"phase":"Completed","completionTime":"2026-01-01T00:00:30Z"`
	stopped  = `"phase":"Recreating","containerRecreateStates":[{"name":"main","phase":"Recreating","isKilled":true}]`
	readySee = `"containerStatusSnapshot":[{"name":"main","ready":true,"restartCount":1,"containerID":"c://1"}]`
	well     = `"containerRecreateStates":[{"name":"main","phase":"Succeeded","isKilled":true}]`
)

func TestRulesOfRestartsSeeTheirViolation(t *testing.T) {
	tellBothWays(t, map[string]bothWays{
		"a container is restarted twice for one request": {&inPlace, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			s.runs(map[bool]int{true: 2, false: 1}[violate])
		}},
		"a container is restarted after a request that restarted it": {&inPlace, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			s.request("", stopped+","+readySee, "")
			s.runs(1)
			s.later()
			s.request("", over+","+well+","+readySee, "")
			if violate {
				s.runs(2)
			}
		}},
		"a container is restarted that no request names": {&inPlace, func(s *story, violate bool) {
			s.runs(0)
			if !violate {
				s.r.Faults = append(s.r.Faults, record.Fault{Kind: "crash", Target: "x/web-0/main", Begin: s.now, End: s.now})
			}
			s.runs(1)
		}},
		"a crash explains one restart": {&inPlace, func(s *story, violate bool) {
			s.runs(0)
			s.r.Faults = append(s.r.Faults, record.Fault{Kind: "crash", Target: "x/web-0/main", Begin: s.now, End: s.now})
			s.runs(1)
			if violate {
				s.runs(2)
			}
		}},
		"an image that came back explains a restart": {&inPlace, func(s *story, violate bool) {
			p := clone(0)
			s.pod(p)
			if !violate {
				p.image, p.runs = "app:2", "app:1"
				s.pod(p)
			}
			p.image, p.restarts = "app:1", 1
			s.pod(p)
		}},
		"an image is changed after a request, which restarts the container then": {&inPlace, func(s *story, violate bool) {
			p := clone(0)
			s.pod(p)
			if !violate {
				s.request("", "", "")
			}
			p.image, p.runs = "app:2", "app:1"
			s.pod(p)
			p.runs, p.restarts = "app:2", 1
			s.pod(p)
			p.restarts = 2
			s.pod(p)
		}},
		"a request says that a container was restarted which was not": {&restarted, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			if !violate {
				s.runs(1)
				s.request("", stopped+","+readySee, "")
			}
			s.request("", over+","+well, "")
		}},
		"a request does not wait for minStartedSeconds": {&restarted, func(s *story, violate bool) {
			const patient = `"minStartedSeconds":10`
			s.runs(0)
			s.request(patient, "", "")
			s.runs(1)
			s.request(patient, stopped+","+readySee, "")
			if !violate {
				s.later()
			}
			s.request(patient, over+","+well+","+readySee, "")
		}},
		"a container that started is restarted, and one that did not is tried again": {&inPlace, func(s *story, violate bool) {
			s.triedAgain(map[bool]string{true: `"running":{}`, false: `"terminated":{"exitCode":128,"reason":"StartError"}`}[violate])
		}},
		"a container that was made and not started is tried again": {&inPlace, func(s *story, violate bool) {
			s.triedAgain(map[bool]string{true: `"running":{}`, false: `"waiting":{}},"containerID":"containerd://1","lastState":{`}[violate])
		}},
		"a second node has no daemon, and the first one had containers": {&availability, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}`, "")
			s.pods("DaemonSet", "agent", "agent-r1", 3)
			s.revisionOf("DaemonSet", "agent", "agent-r2", 2)
			s.later()
			p := pod{kind: "DaemonSet", workload: "agent", name: "agent-0", node: "n0", revision: "agent-r1", ready: "False"}
			containers := map[bool]string{true: "True", false: "False"}[violate]
			s.by("a.1", func() {
				s.put("pods", "x", p.name, strings.Replace(p.object(), `"conditions":[`, `"conditions":[{"type":"ContainersReady","status":"`+containers+`"},`, 1))
				p.name, p.node = "agent-1", "n1"
				s.pod(p)
			})
		}},
		"a second node has no daemon, and the pod of the first one was never bound": {&availability, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}`, "")
			s.pods("DaemonSet", "agent", "agent-r1", 3)
			s.revisionOf("DaemonSet", "agent", "agent-r2", 2)
			s.later()
			p := pod{kind: "DaemonSet", workload: "agent", name: "agent-0", node: map[bool]string{true: "n0"}[violate], revision: "agent-r1", ready: "False",
				phase: map[bool]string{true: "Running", false: "Pending"}[violate]}
			s.by("a.1", func() {
				s.pod(p)
				p.revision = map[bool]string{true: "agent-r1", false: "agent-r2"}[violate] // it has got the new revision a moment before
				s.pod(p)
				p.name, p.node, p.phase, p.revision = "agent-1", "n1", "Running", "agent-r1"
				s.pod(p)
			})
		}},
		"a second node has no daemon, and the first one was lost": {&availability, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}}`, "")
			s.pods("DaemonSet", "agent", "agent-r2", 3)
			s.revisionOf("DaemonSet", "agent", "agent-r2", 2)
			s.later()
			s.put("nodes", "", "n0", `{"metadata":{"name":"n0"},"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoSchedule"}]}}`)
			p := pod{kind: "DaemonSet", workload: "agent", name: "agent-0", node: "n0", revision: "agent-r2", ready: "False"}
			opened := map[bool]string{true: "2026-01-01T00:02:00Z", false: "2026-01-01T00:00:00Z"}[violate]
			s.put("pods", "x", p.name, strings.Replace(p.object(), `"conditions":[{"type":"Ready",`, `"conditions":[{"type":"ContainersReady","status":"True"},
				{"type":"InPlaceUpdateReady","status":"True","lastTransitionTime":"`+opened+`"},
				{"type":"Ready","lastTransitionTime":"2026-01-01T00:01:00Z",`, 1))
			s.later()
			s.by("a.1", func() {
				p.name, p.node = "agent-1", "n1"
				s.pod(p)
			})
		}},
		"a pod that runs loses its address, and one that has ended": {&inPlace, func(s *story, violate bool) {
			p := clone(0)
			s.pod(p)
			p.phase = map[bool]string{true: "Running", false: "Succeeded"}[violate]
			s.put("pods", "x", p.name, strings.Replace(p.object(), `"podIP":"10.0.0.1"`, `"podIP":""`, 1))
		}},
		"a container that ended by itself needs no grace": {&grace, func(s *story, violate bool) {
			const graceful = `"unreadyGracePeriodSeconds":5`
			s.runs(0)
			s.request(graceful, "", "")
			phase := map[bool]string{true: "Pending", false: "Recreating"}[violate]
			s.request(graceful, `"phase":"Recreating","containerRecreateStates":[{"name":"main","phase":"`+phase+`"}]`, "")
			s.request(graceful, stopped, "")
		}},
		"a container is stopped before the grace is over": {&grace, func(s *story, violate bool) {
			const graceful = `"unreadyGracePeriodSeconds":5`
			s.runs(0)
			s.request(graceful, "", "")
			since := fmt.Sprintf(`"conditions":[{"type":"PreRecreateGrace","status":"True","reason":"x","message":"","lastTransitionTime":%q}],`,
				s.now.Format("2006-01-02T15:04:05Z"))
			s.request(graceful, since+`"phase":"Recreating"`, "")
			if !violate {
				s.later()
			}
			s.request(graceful, since+stopped, "")
		}},
		"a request does not end": {&converges, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			if !violate {
				s.request("", over+`,"message":"pod has gone"`, "")
			}
			s.ends()
		}},
		"a request ends late": {&inTime, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			s.r.Phases = append(s.r.Phases, record.Phase{Name: record.FaultsEnd, Time: s.now})
			if violate {
				s.later()
			}
			s.request("", over+`,"message":"deadline"`, "")
		}},
		"a container of an ended request is at work": {&converges, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			phase := map[bool]string{true: "Recreating", false: "Failed"}[violate]
			s.request("", over+`,"containerRecreateStates":[{"name":"main","phase":"`+phase+`"}]`, "")
			s.ends()
		}},
		"an ended request is still active": {&converges, func(s *story, violate bool) {
			s.runs(0)
			s.request("", "", "")
			s.request("", over+`,"message":"pod has gone"`, map[bool]string{true: `"crr.apps.kruise.io/active":"true"`}[violate])
			s.ends()
		}},
	})
}

// A pod that a request takes out of service was taken by its user, and not by the manager that does it.
func TestARequestTakesAPodOutOfServiceForItsUser(t *testing.T) {
	s := tell(t)
	clones(s)
	s.by("a.1", func() { s.pod(down(1)) })
	p := down(0)
	s.by("a.1", func() {
		s.put("pods", "x", p.name, strings.Replace(p.object(), `"conditions":[`, `"conditions":[{"type":"KruisePodReady","status":"False"},`, 1))
	})
	if violations, _ := s.found(); len(violations) > 0 {
		t.Errorf("found %v", violations)
	}
}

// triedAgain has a container, which has been in that state, restarted.
func (s *story) triedAgain(state string) {
	p := clone(0)
	s.put("pods", "x", p.name, strings.Replace(p.object(), `"restartCount":`, `"state":{`+state+`},"restartCount":`, 1))
	p.restarts = 1
	s.pod(p)
}

// pull stores an ImagePullJob, and list what a node has of its image.
func (s *story) pull(status string) {
	s.r.Run.Nodes = 2
	s.put("imagepulljobs", "x", "pull", `{"metadata":{"name":"pull","namespace":"x","uid":"pull"},"spec":{"image":"app:1"},"status":{`+status+`}}`)
}

func (s *story) list(node, phase string, succeeded, failed int) {
	s.r.Run.Nodes = 2
	s.put("nodeimages", "", node, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"images":{"app":{"tags":[{"tag":"1","version":2,
		"ownerReferences":[{"uid":"pull"}]}]}}},"status":{"desired":1,"succeeded":%d,"failed":%d,"imageStatuses":{"app":{"tags":[
		{"tag":"1","version":2,"phase":%q}]}}}}`, node, succeeded, failed, phase))
}

func TestRulesOfImagesSeeTheirViolation(t *testing.T) {
	const both = `"completionTime":"2026-01-01T00:00:30Z","desired":2,"succeeded":2`
	tellBothWays(t, map[string]bothWays{
		"a job ends before its nodes": {&pulls, func(s *story, violate bool) {
			s.pull(`"desired":2`)
			s.pull(`"completionTime":"2026-01-01T00:00:30Z","desired":2,"succeeded":1` +
				map[bool]string{false: `,"failed":1,"failedNodes":["n1"]`}[violate])
		}},
		"a node says something else than the job": {&converges, func(s *story, violate bool) {
			s.pull(both)
			s.list("n0", "Succeeded", 1, 0)
			if violate {
				s.list("n1", "Failed", 0, 1)
			} else {
				s.list("n1", "Succeeded", 1, 0)
			}
			s.ends()
		}},
		"a job does not end": {&converges, func(s *story, violate bool) {
			s.pull(map[bool]string{true: `"desired":2,"active":2`, false: both}[violate])
			s.list("n0", "Succeeded", 1, 0)
			s.list("n1", "Succeeded", 1, 0)
			s.ends()
		}},
		"nobody pulls on simulated nodes": {&converges, func(s *story, violate bool) {
			s.spread("1", `"desired":1,"succeeded":1`, "one")
			s.copied("one", "1")
			s.pull(`"desired":1,"active":1`)
			s.r.Run.Nodes = map[bool]int{true: 1}[violate]
			s.ends()
		}},
		"a tag of a node is in no number": {&converges, func(s *story, violate bool) {
			s.list("n0", "Succeeded", map[bool]int{false: 1}[violate], 0)
			s.ends()
		}},
	})
}
