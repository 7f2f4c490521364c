package rollout

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	// As the API server sends it: whole numbers are integers.
	text2, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := object.UnmarshalJSON(text2); err != nil {
		t.Fatal(err)
	}
	return object
}

// status is a status with numbers in the order replicas, updated, ready and available of the updated ones, at
// a generation.
func status(generation, replicas, updated, ready, available int, more ...string) string {
	return fmt.Sprintf("{observedGeneration: %d, replicas: %d, updatedReplicas: %d, updatedReadyReplicas: %d, updatedAvailableReplicas: %d%s}",
		generation, replicas, updated, ready, available, strings.Join(append([]string{""}, more...), ", "))
}

type step struct{ name, spec, status, want string }

// checkSteps compares what is said of an object with each spec and status. What ends with a dot is not done,
// what begins with "error:" is an error.
func checkSteps(t *testing.T, version, kind string, steps []step) {
	t.Helper()
	for _, tt := range steps {
		t.Run(version+" "+kind+" "+tt.name, func(t *testing.T) {
			object := parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web, generation: 3}, spec: %s, status: %s}", version, kind,
				tt.spec, tt.status))
			p, err := ProgressOf(object)
			got := p.Line
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if p.Done != (!strings.HasSuffix(tt.want, "...") && err == nil) {
				t.Errorf("done: got %t, want %t; %v %s\nwant %s", p.Done, !strings.HasSuffix(tt.want, "...") &&
					err == nil, p.Done, got, tt.want)
			}
		})
	}
}

const waiting = `Waiting for %s "web" rollout to finish: `

// commonSteps are those that CloneSets and StatefulSets of ours have in common. strategy writes the fields of
// the rolling update.
func commonSteps(who string, strategy func(string) string, counts func(generation, replicas, updated, ready, available int) string) []step {
	wait, spec := fmt.Sprintf(waiting, who), func(replicas int, fields string, more ...string) string {
		return fmt.Sprintf("{replicas: %d, updateStrategy: %s%s}", replicas, strategy(fields), strings.Join(append([]string{""}, more...), ", "))
	}
	upTo, done := fmt.Sprintf(`%s "web" rolled out as far as its partition allows: `, who), fmt.Sprintf(`%s "web" successfully rolled out`,
		who)
	return []step{
		{"an older generation, although all is updated", spec(5, ""), counts(2, 5, 5, 5, 5), "Waiting for " + who +
			" spec update to be observed..."},
		{"too few are updated", spec(5, ""), counts(3, 5, 2, 2, 2), wait + "2 out of 5 new pods have been updated..."},
		{"a number as partition", spec(5, "partition: 2"), counts(3, 5, 2, 2, 2), wait + "2 out of 3 new pods have been updated..."},
		{"a percentage is rounded up", spec(5, "partition: 50%"), counts(3, 5, 1, 1, 1), wait + "1 out of 2 new pods have been updated..."},
		{"a percentage leaves one to update", spec(2, "partition: 99%"), counts(3, 2, 0, 0, 0), wait +
			"0 out of 1 new pods have been updated..."},
		{"with one pod it leaves none", spec(1, "partition: 99%"), counts(3, 1, 0, 0, 0), upTo + "0 of 1 pods are updated"},
		{"100 % leaves none", spec(4, "partition: 100%"), counts(3, 4, 0, 0, 0), upTo + "0 of 4 pods are updated"},
		{"a partition that cannot be", spec(5, "partition: half"), counts(3, 5, 5, 5, 5),
			`error: partition: "half" is neither an integer nor a percentage`},
		{"above the number of pods", spec(5, "partition: 9"), counts(3, 5, 0, 0, 0), upTo + "0 of 5 pods are updated"},
		{"too few are ready", spec(5, "partition: 2"), counts(3, 5, 3, 2, 2), wait + "2 of 3 updated pods are ready..."},
		{"too few are available", spec(5, "", "minReadySeconds: 10"), counts(3, 5, 5, 5, 4), wait + "4 of 5 updated pods are available..."},
		{"too few are available of those beside the partition", spec(5, "partition: 2", "minReadySeconds: 10"), counts(3, 5, 3, 3, 2),
			wait + "2 of 3 updated pods are available..."},
		{"all are available", spec(5, "", "minReadySeconds: 10"), counts(3, 5, 5, 5, 5), done},
		{"who asks for availability", spec(5, ""), counts(3, 5, 5, 5, 4), done},
		{"up to the partition", spec(5, "partition: 2"), counts(3, 5, 3, 3, 3), upTo + "3 of 5 pods are updated"},
		{"paused before", spec(5, "paused: true"), counts(3, 5, 2, 2, 2), wait + "2 out of 5 new pods have been updated; it is paused..."},
		{"paused when done", spec(5, "paused: true"), counts(3, 5, 5, 5, 5), done + "; it is paused"},
		{"paused at the partition", spec(5, "partition: 2, paused: true"), counts(3, 5, 3, 3, 3), upTo + "3 of 5 pods are updated; it is paused"},
		{"done", spec(5, ""), counts(3, 5, 5, 5, 5), done},
		{"nothing is to be there", spec(0, ""), counts(3, 0, 0, 0, 0), done},
		{"one by default", "{}", counts(3, 1, 0, 0, 0), wait + "0 out of 1 new pods have been updated..."},
	}
}

const onDelete = "error: rollout status is only available for RollingUpdate strategy type, and this one is OnDelete"

// OPS-141: of a CloneSet of both versions the generation comes first, then a deadline that is exceeded, then
// the pods that are updated, ready and available, each against what the partition leaves to update, and
// pauses are told.
func TestProgressOfCloneSets(t *testing.T) {
	counts := func(g, replicas, updated, ready, available int) string {
		return status(g, replicas, updated, ready, available)
	}
	steps := func(strategy func(string) string) []step {
		deadline := "conditions: [{type: Progressing, status: %s, reason: %s}]"
		exceeded := fmt.Sprintf(deadline, `"False"`, "ProgressDeadlineExceeded")
		return append(commonSteps("cloneset", strategy, counts), []step{
			{"the deadline is exceeded", "{replicas: 5}", status(3, 5, 2, 2, 2, exceeded), `error: cloneset "web" exceeded its progress deadline`},
			{"it was, for an older generation", "{replicas: 5}", status(2, 5, 2, 2, 2, exceeded),
				"Waiting for cloneset spec update to be observed..."},
			{"it is not", "{replicas: 5}", status(3, 5, 5, 5, 5, fmt.Sprintf(deadline, `"True"`, "CloneSetAvailable")),
				`cloneset "web" successfully rolled out`},
			{"updated in place", "{replicas: 2, updateStrategy: " + strategy("podUpdatePolicy: InPlaceOnly") + "}", status(2, 2, 2, 2, 2),
				"Waiting for cloneset spec update to be observed..."},
		}...)
	}
	checkSteps(t, "apps.kruise.io/v1beta1", "CloneSet",
		steps(func(fields string) string { return "{type: RollingUpdate, rollingUpdate: {" + fields + "}}" }))
	checkSteps(t, "apps.kruise.io/v1alpha1", "CloneSet", steps(func(fields string) string { return "{" + fields + "}" }))
	checkSteps(t, "apps.kruise.io/v1beta1", "CloneSet",
		[]step{{"on delete", "{replicas: 1, updateStrategy: {type: OnDelete}}", status(3, 1, 1, 1, 1), onDelete}})
}

// OPS-142: of a StatefulSet of both versions the same is said, with integers and percentages as partitions,
// ordered and unordered; OnDelete is an error.
func TestProgressOfAdvancedStatefulSets(t *testing.T) {
	flat := func(fields string) string { return "{type: RollingUpdate, rollingUpdate: {" + fields + "}}" }
	unordered := func(fields string) string {
		return "{rollingUpdate: {" + strings.TrimPrefix(fields+", unorderedUpdate: {priorityStrategy: {}}", ", ") + "}}"
	}
	counts := func(g, replicas, updated, ready, available int) string {
		return status(g, replicas, updated, ready, available)
	}
	// In v1alpha1 the status has the ready ones of both revisions together: here all old ones are.
	together := func(g, replicas, updated, ready, available int) string {
		return fmt.Sprintf("{observedGeneration: %d, replicas: %d, updatedReplicas: %d, readyReplicas: %d, availableReplicas: %d}", g, replicas,
			updated,
			ready+replicas-updated, available+replicas-updated)
	}
	checkSteps(t, "apps.kruise.io/v1beta1", "StatefulSet", commonSteps("statefulset", flat, counts))
	checkSteps(t, "apps.kruise.io/v1beta1", "StatefulSet", commonSteps("statefulset", unordered, counts))
	checkSteps(t, "apps.kruise.io/v1alpha1", "StatefulSet", commonSteps("statefulset", flat, together))
	checkSteps(t, "apps.kruise.io/v1alpha1", "StatefulSet", commonSteps("statefulset", unordered, together))
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		checkSteps(t, "apps.kruise.io/"+version, "StatefulSet", []step{
			{"on delete", "{replicas: 1, updateStrategy: {type: OnDelete}}", status(3, 1, 1, 1, 1), onDelete},
			{"seconds of the rolling update", "{replicas: 1, updateStrategy: {rollingUpdate: {minReadySeconds: 5}}}",
				"{observedGeneration: 3, replicas: 1, updatedReplicas: 1, updatedReadyReplicas: 1, readyReplicas: 1}",
				fmt.Sprintf(waiting, "statefulset") + "0 of 1 updated pods are available..."},
		})
	}
}

// OPS-140 (part): the kinds that the reference cannot follow, and those of Kubernetes.
func TestProgressOfOtherKinds(t *testing.T) {
	wait := fmt.Sprintf(waiting, "daemonset")
	nodes := func(desired, updated, ready, available int) string {
		return fmt.Sprintf("{observedGeneration: 3, desiredNumberScheduled: %d, updatedNumberScheduled: %d, numberReady: %d, numberAvailable: "+
			"%d}", desired, updated, ready, available)
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		checkSteps(t, "apps.kruise.io/"+version, "DaemonSet", []step{
			{"not observed", "{}", "{observedGeneration: 2}", "Waiting for daemonset spec update to be observed..."},
			{"too few", "{}", nodes(7, 3, 7, 7), wait + "3 out of 7 new pods have been updated..."},
			{"a percentage is rounded down", "{updateStrategy: {rollingUpdate: {partition: 50%}}}", nodes(7, 3, 7, 7), wait +
				"3 out of 4 new pods have been updated..."},
			{"not ready", "{}", nodes(7, 7, 5, 5), wait + "5 of 7 updated pods are ready..."},
			{"not ready beside the partition", "{updateStrategy: {rollingUpdate: {partition: 5}}}", nodes(7, 2, 6, 7),
				wait + "1 of 2 updated pods are ready..."},
			{"not available beside the partition", "{minReadySeconds: 4, updateStrategy: {rollingUpdate: {partition: 5}}}", nodes(7, 2, 7, 6),
				wait + "1 of 2 updated pods are available..."},
			{"not available", "{minReadySeconds: 4}", nodes(7, 7, 7, 6), wait + "6 of 7 updated pods are available..."},
			{"paused", "{updateStrategy: {rollingUpdate: {paused: true}}}", nodes(7, 1, 7, 7), wait +
				"1 out of 7 new pods have been updated; it is paused..."},
			{"up to the partition", "{updateStrategy: {rollingUpdate: {partition: 5}}}", nodes(7, 2, 7, 7),
				`daemonset "web" rolled out as far as its partition allows: 2 of 7 pods are updated`},
			{"more are kept than there are", "{updateStrategy: {rollingUpdate: {partition: 9}}}", nodes(7, 0, 7, 7),
				`daemonset "web" rolled out as far as its partition allows: 0 of 7 pods are updated`},
			{"done", "{}", nodes(7, 7, 7, 7), `daemonset "web" successfully rolled out`},
			{"nodes by selector", "{updateStrategy: {rollingUpdate: {selector: {matchLabels: {a: b}}}}}", nodes(7, 2, 7, 7),
				"error: rollout status is not available while only nodes that match a selector are updated"},
			{"on delete", "{updateStrategy: {type: OnDelete}}", nodes(7, 7, 7, 7), onDelete},
		})
	}
	united := func(updated, ready int) string {
		return status(3, 6, updated, ready, 0, "subsetStatuses: [{name: a, replicas: 4}, {name: b, replicas: 2}]", "subsetReplicas: {a: 4, b: 2}")
	}
	wait = fmt.Sprintf(waiting, "uniteddeployment")
	partitions := "{updateStrategy: {manualUpdate: {partitions: {a: 1, b: 5}}}}"
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		checkSteps(t, "apps.kruise.io/"+version, "UnitedDeployment", []step{
			{"not observed", "{}", "{observedGeneration: 2}", "Waiting for uniteddeployment spec update to be observed..."},
			{"too few", "{replicas: 6}", united(3, 3), wait + "3 out of 6 new pods have been updated..."},
			{"as many as there are", "{}", united(3, 3), wait + "3 out of 6 new pods have been updated..."},
			{"partitions of subsets, no greater than these", partitions, united(2, 2), wait + "2 out of 3 new pods have been updated..."},
			{"not ready", "{replicas: 6}", united(6, 5), wait + "5 of 6 updated pods are ready..."},
			{"up to the partitions", partitions, united(3, 3),
				`uniteddeployment "web" rolled out as far as its partition allows: 3 of 6 pods are updated`},
			{"done", "{replicas: 6}", united(6, 6), `uniteddeployment "web" successfully rolled out`},
		})
	}
	checkSteps(t, "apps/v1", "Deployment", []step{
		{"waits", "{replicas: 3}", "{observedGeneration: 3, updatedReplicas: 1}",
			`Waiting for deployment "web" rollout to finish: 1 out of 3 new replicas have been updated...`},
		{"done", "{replicas: 1}", "{observedGeneration: 3, replicas: 1, updatedReplicas: 1, availableReplicas: 1}",
			`deployment "web" successfully rolled out`},
	})
	checkSteps(t, "apps/v1", "DaemonSet", []step{{"waits", "{updateStrategy: {type: RollingUpdate}}", nodes(3, 1, 3, 3),
		`Waiting for daemon set "web" rollout to finish: 1 out of 3 new pods have been updated...`}})
	checkSteps(t, "apps/v1", "StatefulSet", []step{{"waits", "{replicas: 3, updateStrategy: {type: RollingUpdate}}",
		"{observedGeneration: 3, readyReplicas: 1}",
		`Waiting for 2 pods to be ready...`}})
	checkSteps(t, "batch/v1", "Job", []step{{"has none", "{}", "{}", "error: a Job has no rollout status"}})
	for object, want := range map[string]Progress{
		"{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 5, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}, " +
			"status: {updatedReplicas: 1}}": {Updated: 1, Target: 3},
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}, status: {updatedReplicas: " +
			"2}}": {Updated: 2, Target: 3},
		"{apiVersion: apps/v1, kind: DaemonSet, spec: {updateStrategy: {type: RollingUpdate}}, status: {updatedNumberScheduled: 2, " +
			"desiredNumberScheduled: 4}}": {Updated: 2, Target: 4},
		"{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, spec: {replicas: 9}, status: {updatedReplicas: " +
			"4}}": {Updated: 4, Target: 9},
	} {
		if p, err := ProgressOf(parse(t, object)); err != nil {
			t.Errorf("unexpected error: %v\n%q\n%+v", err, object, p)
		} else if p.Updated != want.Updated {
			t.Errorf("updated: got %d, want %d\n%q\n%+v\n%v", p.Updated, want.Updated, object, p, err)
		} else if p.Target != want.Target {
			t.Errorf("target: got %d, want %d\n%q\n%+v\n%v", p.Target, want.Target, object, p, err)
		}
	}
}
