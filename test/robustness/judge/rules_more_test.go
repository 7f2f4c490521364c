package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// job stores a BroadcastJob of an AdvancedCronJob named cron.
func (s *story) job(name, at, status, finalizers string) {
	s.put("broadcastjobs", "x", name, fmt.Sprintf(`{"metadata":{"name":%[1]q,"namespace":"x","uid":%[1]q,"generation":1,
		"finalizers":[%[2]s],"annotations":{"apps.kruise.io/scheduled-at":%[3]q},"ownerReferences":[%[4]s]},"status":{%[5]s}}`,
		name, finalizers, at, owner("AdvancedCronJob", "cron"), status))
	if !strings.Contains(status, "completed") {
		return
	}
	for i := range 3 {
		s.pod(pod{kind: "BroadcastJob", workload: name, name: fmt.Sprintf("%s-%d", name, i), node: fmt.Sprintf("n%d", i), phase: "Succeeded"})
	}
}

const (
	minuteOne, minuteTwo = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
	completed            = `"desired":3,"succeeded":3,"phase":"completed",`
	ended                = completed + `"observedGeneration":1,"conditions":[{"type":"Complete","status":"True"}]`
)

func TestRulesOfJobsSeeTheirViolation(t *testing.T) {
	cron := func(s *story, paused bool) {
		s.set("advancedcronjobs", "cron", fmt.Sprintf(`"concurrencyPolicy":"Forbid","paused":%t,"successfulJobsHistoryLimit":1`, paused), "")
	}
	tellBothWays(t, map[string]bothWays{
		"a run comes twice": {&runs, func(s *story, violate bool) {
			cron(s, false)
			s.job("cron-1", minuteOne, ended, "")
			s.put("broadcastjobs", "x", "cron-1", "")
			s.job("cron-1", map[bool]string{true: minuteOne, false: minuteTwo}[violate], ended, "")
		}},
		"two jobs are active with Forbid": {&concurrency, func(s *story, violate bool) {
			cron(s, false)
			s.job("cron-1", minuteOne, map[bool]string{true: `"active":2`, false: ended}[violate], "")
			s.job("cron-2", minuteTwo, "", "")
		}},
		"a job is made in a pause": {&concurrency, func(s *story, violate bool) {
			cron(s, false)
			cron(s, true)
			if violate {
				s.later()
			}
			s.job("cron-1", minuteOne, "", "")
		}},
		"a run is not in the status": {&converges, func(s *story, violate bool) {
			s.set("advancedcronjobs", "cron", `"successfulJobsHistoryLimit":1`, "")
			s.job("cron-1", minuteOne, ended, "")
			s.set("advancedcronjobs", "cron", `"successfulJobsHistoryLimit":1`,
				map[bool]string{true: "", false: `"lastScheduleTime":"` + minuteOne + `"`}[violate])
			s.ends()
		}},
		"a run stays unrecorded": {&converges, func(s *story, violate bool) {
			s.set("advancedcronjobs", "cron", "", `"lastScheduleTime":"`+minuteOne+`"`)
			s.job("cron-1", minuteOne, ended, map[bool]string{true: `"apps.kruise.io/unrecorded-run"`}[violate])
			s.ends()
		}},
		"too many jobs are kept": {&converges, func(s *story, violate bool) {
			s.set("advancedcronjobs", "cron", `"successfulJobsHistoryLimit":1`, `"lastScheduleTime":"`+minuteTwo+`"`)
			if violate {
				s.job("cron-1", minuteOne, ended, "")
			}
			s.job("cron-2", minuteTwo, ended, "")
			s.ends()
		}},
		"an active job is not listed": {&converges, func(s *story, violate bool) {
			s.set("advancedcronjobs", "cron", "", `"active":[{"uid":"cron-1"}],"lastScheduleTime":"`+minuteOne+`"`)
			s.job("cron-1", minuteOne, completed+`"observedGeneration":1,"conditions":[{"type":"Complete","status":"`+
				map[bool]string{true: "True", false: "False"}[violate]+`"}]`, "")
			s.ends()
		}},
	})
}

// looking is a pod with an ephemeral container of a job named look.
func looking(name, state string) string {
	text := pod{kind: "CloneSet", workload: "web", name: name}.object()
	text = strings.Replace(text, `"containers":`, `"ephemeralContainers":[{"name":"look","env":[{"name":"KRUISE_EJOB_ID","value":"look"}]}],"containers":`, 1)
	if state == "" {
		return text
	}
	return strings.Replace(text, `"containerStatuses":`, `"ephemeralContainerStatuses":[{"name":"look","state":{`+state+`}}],"containerStatuses":`, 1)
}

func TestRulesOfEphemeralJobsSeeTheirViolation(t *testing.T) {
	const done, failed = `"terminated":{"exitCode":0}`, `"terminated":{"exitCode":1}`
	tellBothWays(t, map[string]bothWays{
		"a pod too many is looked into": {&looks, func(s *story, violate bool) {
			s.set("ephemeraljobs", "look", `"parallelism":2`, "")
			for i, state := range []string{"", map[bool]string{true: `"running":{}`, false: done}[violate], ""} {
				name := fmt.Sprintf("web-%d", i)
				s.pod(pod{kind: "CloneSet", workload: "web", name: name})
				s.by("a.1", func() { s.put("pods", "x", name, looking(name, state)) })
			}
		}},
		"an EphemeralJob does not end": {&converges, func(s *story, violate bool) {
			s.set("ephemeraljobs", "look", "", `"match":1,"succeeded":1,"phase":"`+map[bool]string{true: "Running", false: "Succeeded"}[violate]+`"`)
			s.ends()
		}},
		"a pod is in no number": {&converges, func(s *story, violate bool) {
			s.set("ephemeraljobs", "look", "", fmt.Sprintf(`"match":2,"succeeded":1,"failed":%d,"phase":"Failed"`, map[bool]int{false: 1}[violate]))
			s.ends()
		}},
		"a pod that ended well counts as failed": {&converges, func(s *story, violate bool) {
			s.set("ephemeraljobs", "look", "", `"match":1,"failed":1,"phase":"Failed"`)
			s.put("pods", "x", "web-0", looking("web-0", map[bool]string{true: done, false: failed}[violate]))
			s.ends()
		}},
	})
}

// spread stores a ResourceDistribution named shared, for two namespaces.
func (s *story) spread(version, status string, namespaces ...string) {
	var list []string
	for _, n := range namespaces {
		list = append(list, fmt.Sprintf(`{"name":%q}`, n))
	}
	s.put("resourcedistributions", "", "shared", fmt.Sprintf(`{"metadata":{"name":"shared","uid":"shared","generation":%[1]d},
		"spec":{"resource":{"metadata":{"name":"shared"},"data":{"version":%[2]q}},"targets":{"includedNamespaces":{"list":[%[3]s]}}},
		"status":{"observedGeneration":%[1]d,%[4]s}}`, s.revision, version, strings.Join(list, ","), status))
}

// copied stores a ConfigMap, by default one of the ResourceDistribution.
func (s *story) copied(namespace, version string, owners ...string) {
	if owners == nil {
		owners = []string{owner("ResourceDistribution", "shared")}
	}
	s.put("configmaps", namespace, "shared", fmt.Sprintf(`{"metadata":{"name":"shared","namespace":%q,"ownerReferences":[%s]},
		"data":{"version":%q}}`, namespace, strings.Join(owners, ","), version))
}

func TestRulesOfCopiesSeeTheirViolation(t *testing.T) {
	const none = `"desired":0`
	tellBothWays(t, map[string]bothWays{
		"somebody's object is overwritten": {&foreign, func(s *story, violate bool) {
			s.spread("1", none, "one")
			if violate {
				s.copied("one", "theirs", "")
			}
			s.by("a.1", func() { s.copied("one", "1") })
		}},
		"somebody's object is deleted": {&foreign, func(s *story, violate bool) {
			s.spread("1", none)
			if violate {
				s.copied("one", "theirs", "")
			} else {
				s.copied("one", "1")
			}
			s.by("a.1", func() { s.put("configmaps", "one", "shared", "") })
		}},
		"a copy gets what was there long ago": {&copies, func(s *story, violate bool) {
			s.spread("1", none, "one")
			s.copied("one", "0")
			s.spread("2", none, "one")
			if violate {
				s.later()
			}
			s.by("a.1", func() { s.copied("one", "1") })
		}},
		"a user spoils a copy while a write of a manager is not answered": {&copies, func(s *story, violate bool) {
			s.spread("1", none, "one")
			s.copied("one", "1")
			s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Agent: "kruise-manager/x", Verb: "PATCH", Begin: s.now,
				End: s.now, Status: 500, Sent: true, Path: "/api/v1/namespaces/one/configmaps/shared"})
			s.put("configmaps", "one", "shared", fmt.Sprintf(`{"metadata":{"name":"shared","namespace":"one","ownerReferences":[%s],
				"managedFields":[{"manager":%q,"time":"2026-01-01T00:00:00Z"}]},"data":{"version":"spoiled"}}`, owner("ResourceDistribution", "shared"),
				map[bool]string{true: "kruise-manager", false: "somebody"}[violate]))
		}},
		"a copy is deleted in a target": {&copies, func(s *story, violate bool) {
			s.spread("1", none, "one")
			s.copied("one", "1")
			if !violate {
				s.spread("1", none)
			}
			s.by("a.1", func() { s.put("configmaps", "one", "shared", "") })
		}},
		"a copy is old at the end": {&converges, func(s *story, violate bool) {
			s.spread("2", `"desired":2,"succeeded":1,"failed":1`, "one", "two")
			s.copied("one", map[bool]string{true: "1", false: "2"}[violate])
			s.copied("two", "theirs", "")
			s.ends()
		}},
		"a copy is missing at the end": {&converges, func(s *story, violate bool) {
			s.spread("2", `"desired":2,"succeeded":2`, "one", "two")
			s.copied("one", "2")
			if !violate {
				s.copied("two", "2")
			}
			s.ends()
		}},
		"a copy is left behind": {&converges, func(s *story, violate bool) {
			s.spread("2", `"desired":1,"succeeded":1`, "one")
			s.copied("one", "2")
			if violate {
				s.copied("two", "2")
			}
			s.ends()
		}},
	})
}

// placed is a pod of the StatefulSet that must be in a zone, and wants to be on a node.
func placed(name, zone, host string) string {
	text := pod{kind: "StatefulSet", workload: "db", name: name}.object()
	return strings.Replace(text, `"containers":`, fmt.Sprintf(`"nodeSelector":{"zone":%q},"affinity":{"nodeAffinity":{
		"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[
		{"key":"host","operator":"In","values":[%q]}]}}]}},"containers":`, zone, host), 1)
}

func TestRulesOfPlacesSeeTheirViolation(t *testing.T) {
	remember := func(s *story, name, node, labels string) {
		states := ""
		if name != "" {
			states = fmt.Sprintf(`%q:{"nodeName":%q,"nodeTopologyLabels":{%s}}`, name, node, labels)
		}
		s.put("persistentpodstates", "x", "db", `{"metadata":{"name":"db","namespace":"x","uid":"places"},"spec":{
			"targetRef":{"kind":"StatefulSet","name":"db"},"requiredPersistentTopology":{"keys":["zone"]},
			"preferredPersistentTopology":[{"weight":1,"preference":{"keys":["host"]}}]},"status":{"podStates":{`+states+`}}}`)
	}
	const first, second = `"zone":"a","host":"n0"`, `"zone":"b","host":"n1"`
	tellBothWays(t, map[string]bothWays{
		"a pod comes again in another zone": {&places, func(s *story, violate bool) {
			remember(s, "db-0", "n0", first)
			s.put("pods", "x", "db-0", placed("db-0", map[bool]string{true: "b", false: "a"}[violate], "n0"))
		}},
		"a pod does not want to be where it was": {&places, func(s *story, violate bool) {
			remember(s, "db-0", "n0", first)
			s.put("pods", "x", "db-0", placed("db-0", "a", map[bool]string{true: "n1", false: "n0"}[violate]))
		}},
		"a pod comes again where it was long ago": {&places, func(s *story, violate bool) {
			remember(s, "db-0", "n0", first)
			remember(s, "db-0", "n1", second)
			if violate {
				s.later()
			}
			s.put("pods", "x", "db-0", placed("db-0", "a", "n0"))
		}},
		"a pod was not remembered yet": {&places, func(s *story, violate bool) {
			remember(s, "", "", "")
			remember(s, "db-0", "n0", first)
			if violate {
				s.later()
			}
			s.pod(pod{kind: "StatefulSet", workload: "db", name: "db-0"})
		}},
		"a pod is remembered elsewhere at the end": {&converges, func(s *story, violate bool) {
			s.put("nodes", "", "n1", `{"metadata":{"name":"n1","labels":{"zone":"b","host":"n1"}}}`)
			s.pod(pod{kind: "StatefulSet", workload: "db", name: "db-0", node: "n1"})
			remember(s, "db-0", "n1", map[bool]string{true: first, false: second}[violate])
			s.ends()
		}},
		"a pod that is gone is remembered": {&converges, func(s *story, violate bool) {
			remember(s, map[bool]string{true: "db-0"}[violate], "n0", first)
			s.ends()
		}},
	})
}

// Costs and what is not in service decide which pods a CloneSet deletes; what a manager may not know does not.
func TestRulesOfTheOrderSeeTheirViolation(t *testing.T) {
	const unsurged = `"updateStrategy":{"rollingUpdate":{"maxSurge":0}}` // what a CloneSet has that says nothing of it
	smaller := func(s *story, change func(i int) pod) {
		s.set("clonesets", "web", `"replicas":3,`+unsurged, "")
		for i := range 3 {
			s.pod(change(i))
		}
		s.later()
		s.set("clonesets", "web", `"replicas":2,`+unsurged, "")
		s.later()
	}
	remove := func(s *story, p pod) {
		p.going = "yes"
		s.by("a.1", func() { s.pod(p) })
	}
	priced := func(cost int) func(i int) pod {
		return func(i int) pod {
			p := clone(i)
			if i == 1 {
				p.annotations = fmt.Sprintf(`"controller.kubernetes.io/pod-deletion-cost":"%d"`, cost)
			}
			return p
		}
	}
	tellBothWays(t, map[string]bothWays{
		"a pod in service goes before one that is not": {&order, func(s *story, violate bool) {
			smaller(s, func(i int) pod { return map[bool]pod{true: down(i), false: clone(i)}[i == 1] })
			s.set("clonesets", "web", `"replicas":1,`+unsurged, "") // lately: none is too few
			remove(s, map[bool]pod{true: clone(0), false: down(1)}[violate])
		}},
		"a pod goes before one that costs less": {&order, func(s *story, violate bool) {
			smaller(s, priced(map[bool]int{true: -5, false: 5}[violate]))
			remove(s, clone(0))
		}},
		"a pod goes before one whose cost was lowered long ago": {&order, func(s *story, violate bool) {
			smaller(s, priced(0))
			s.pod(priced(-5)(1))
			if violate {
				s.later()
			}
			remove(s, clone(0))
		}},
		"nobody tried to delete the other pod": {&order, func(s *story, violate bool) {
			smaller(s, priced(-5))
			remove(s, clone(0))
			if !violate {
				s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "DELETE", Begin: s.now, End: s.now,
					Status: 500, Path: "/api/v1/namespaces/x/pods/web-1"})
			}
		}},
		"the other pod does not stay": {&order, func(s *story, violate bool) {
			smaller(s, priced(-5))
			remove(s, clone(0))
			if violate {
				s.later()
			}
			p := priced(-5)(1)
			p.labels = `,"apps.kruise.io/specified-delete":"true"`
			s.pod(p)
			remove(s, p)
		}},
	})
}

// united stores a UnitedDeployment of two subsets, and what belongs to it.
func united(s *story, one, two int, status string) {
	s.put("uniteddeployments", "x", "all", `{"metadata":{"name":"all","namespace":"x","uid":"all"},"spec":{"replicas":3,
		"topology":{"subsets":[{"name":"one"},{"name":"two"}]}},"status":{"replicas":3,"readyReplicas":3,"updatedReplicas":3,
		"subsetStatuses":[`+status+`]}}`)
	s.revisionOf("UnitedDeployment", "all", "all-r1", 1)
	for name, n := range map[string]int{"one": one, "two": two} {
		s.put("clonesets", "x", name, fmt.Sprintf(`{"metadata":{"name":%[1]q,"namespace":"x","uid":%[1]q,"labels":{
			"apps.kruise.io/subset-name":%[1]q,"apps.kruise.io/controller-revision-hash":"all-r1"},"ownerReferences":[%[2]s]},
			"spec":{"replicas":%[3]d},"status":{"replicas":%[3]d,"readyReplicas":%[3]d,"updatedReplicas":%[3]d,"updateRevision":"%[1]s-r1"}}`,
			name, owner("UnitedDeployment", "all"), n))
		s.revisionOf("CloneSet", name, name+"-r1", 1)
		for i := range n {
			s.pod(pod{kind: "CloneSet", workload: name, name: fmt.Sprintf("%s-%d", name, i), revision: name + "-r1",
				labels: `,"apps.kruise.io/controller-revision-hash":"all-r1"`})
		}
	}
	s.ends()
}

func TestTheRuleOfUnitedDeploymentsSeesItsViolation(t *testing.T) {
	const evenly = `{"name":"one","replicas":2,"readyReplicas":2},{"name":"two","replicas":1,"readyReplicas":1}`
	tellBothWays(t, map[string]bothWays{
		"pods are not divided evenly": {&converges, func(s *story, violate bool) {
			if violate {
				united(s, 3, 0, `{"name":"one","replicas":3,"readyReplicas":3},{"name":"two"}`)
			} else {
				united(s, 2, 1, evenly)
			}
		}},
		"the status is of another division": {&converges, func(s *story, violate bool) {
			united(s, map[bool]int{true: 1, false: 2}[violate], map[bool]int{true: 2, false: 1}[violate], evenly)
		}},
		"there are too few": {&converges, func(s *story, violate bool) {
			united(s, map[bool]int{true: 1, false: 2}[violate], 1, strings.Replace(evenly, `2,"readyReplicas":2`,
				map[bool]string{true: `1,"readyReplicas":1`, false: `2,"readyReplicas":2`}[violate], 1))
		}},
	})
}
