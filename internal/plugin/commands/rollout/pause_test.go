package rollout_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// OPS-147: each kind is paused and resumed by its own field, in both versions; what is already so, and kinds
// that cannot, are errors.
func TestPauseAndResume(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		ours := "apps.kruise.io/" + version
		ofCloneSet := []string{"spec", "updateStrategy", "rollingUpdate", "paused"}
		if version == "v1alpha1" {
			ofCloneSet = []string{"spec", "updateStrategy", "paused"}
		}
		for _, tt := range []struct {
			apiVersion, kind, plural string
			path                     []string
		}{
			{"apps/v1", "Deployment", "deployments", []string{"spec", "paused"}},
			{ours, "CloneSet", "clonesets", ofCloneSet},
			{ours, "StatefulSet", "statefulsets.apps.kruise.io", []string{"spec", "updateStrategy", "rollingUpdate", "paused"}},
			{ours, "DaemonSet", "daemonsets.apps.kruise.io", []string{"spec", "updateStrategy", "rollingUpdate", "paused"}},
			{ours, "SidecarSet", "sidecarsets", []string{"spec", "updateStrategy", "paused"}},
			{ours, "BroadcastJob", "broadcastjobs", []string{"spec", "paused"}},
			{ours, "AdvancedCronJob", "advancedcronjobs", []string{"spec", "paused"}},
		} {
			s := plugintest.New(t, version,
				fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web}, spec: {future: kept, updateStrategy: {future: kept}}}", tt.apiVersion,
					tt.kind))
			name := strings.ToLower(tt.kind) + "." + strings.Split(tt.apiVersion, "/")[0] + "/web"
			is := func() bool {
				object := s.Get(t, tt.plural, "web")
				paused, _, _ := unstructured.NestedBool(object.Object, tt.path...)
				if kept, _, _ := unstructured.NestedString(object.Object, "spec", "updateStrategy", "future"); kept != "kept" {
					t.Error("a field is lost", object)
				}
				return paused
			}
			for _, step := range []struct {
				command, out, err string
				paused            bool
			}{
				{"resume", "", name + ": is not paused", false},
				{"pause --dry-run=client", name + " paused (dry run)\n", "", false},
				{"pause --dry-run=server", name + " paused (server dry run)\n", "", false},
				{"pause", name + " paused\n", "", true},
				{"pause", "", name + ": is already paused", true},
				{"resume -o name", name + "\n", "", false},
				{"resume", "", name + ": is not paused", false},
			} {
				result := s.Run(t, command, append(append([]string{"rollout"}, strings.Fields(step.command)...), name)...)
				if result.Out != step.out {
					t.Errorf("%s: output of %s: got %q, want %q", version, step.command, result.Out, step.out)
				}
				if err := fmt.Sprint(result.Err); err != step.err && (step.err != "" || result.Err != nil) {
					t.Errorf("%s: error of %s: got %q, want %q", version, step.command, err, step.err)
				}
				if is() != step.paused {
					t.Errorf("%s: paused after %s: got %t, want %t", version, step.command, is(), step.paused)
				}
			}
		}
	}
	s := server(t, "v1beta1")
	result := s.Run(t, command, "rollout", "pause", "ds/web", "clone/none", "clone/web", "deploy/web")
	text := fmt.Sprint(result.Err)
	if result.Out != "cloneset.apps.kruise.io/web paused\ndeployment.apps/web paused\n" {
		t.Errorf("output: got %q, want %q\n%v", result.Out,
			"cloneset.apps.kruise.io/web paused\ndeployment.apps/web paused\n", result)
	}
	if !strings.Contains(text, `clonesets.apps.kruise.io "none" not found`) {
		t.Errorf("error: got %q, want it to contain %q\n%v", text, `clonesets.apps.kruise.io "none" not found`,
			result)
	}
	if !strings.Contains(text, "daemonset.apps/web: a DaemonSet cannot be paused") {
		t.Errorf("error: got %q, want it to contain %q\n%v", text,
			"daemonset.apps/web: a DaemonSet cannot be paused", result)
	}
}

// OPS-146: the kinds of Kubernetes are restarted by an annotation, and ours by a variable in each app
// container; all that are given are restarted; those that are paused are errors.
func TestRestart(t *testing.T) {
	moment := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		s, results := server(t, version), []plugintest.Result(nil)
		for _, member := range []string{"cloneSetTemplate", "advancedStatefulSetTemplate", "statefulSetTemplate", "deploymentTemplate"} {
			s.Put(t, fmt.Sprintf(`{apiVersion: apps.kruise.io/%s, kind: UnitedDeployment, metadata: {name: %s},
spec: {template: {%s: {spec: {template: {spec: {
initContainers: [{name: init}], containers: [{name: app, future: kept}]}}}}}}}`, version, strings.ToLower(member), member))
		}
		run := func(args ...string) {
			before := time.Now().Truncate(time.Second)
			result := s.Run(t, command, append([]string{"rollout", "restart"}, args...)...)
			for _, patch := range s.Patches(t) {
				for _, text := range moment.FindAllString(patch, -1) {
					if at, err := time.Parse(time.RFC3339, text); err != nil {
						t.Errorf("unexpected error: %v; restarted at %s, which is not now: %v", err, text, err)
					} else if at.Before(before) {
						t.Errorf("the time is before the begin: got true, want false; restarted at %s, which is not now: %v",
							text, err)
					} else if at.After(time.Now()) {
						t.Errorf("the time is still to come: got true, want false; restarted at %s, which is not now: %v",
							text, err)
					}
				}
				result.Out += "  " + moment.ReplaceAllString(patch, "NOW") + "\n"
			}
			results = append(results, result)
		}
		var all []string
		for _, k := range kinds(version) {
			all = append(all, k.named)
		}
		// A variable of that name is replaced, and init containers are left alone.
		s.Change(t, "clonesets", "web", func(o map[string]any) {
			spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			spec["initContainers"] = []any{map[string]any{"name": "init", "image": "busybox"}}
			spec["containers"].([]any)[1].(map[string]any)["env"] = []any{map[string]any{"name": "RESTARTED_AT",
				"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}}}}
		})
		run(all...)
		run("ud/clonesettemplate", "ud/advancedstatefulsettemplate", "ud/statefulsettemplate", "ud/deploymenttemplate")
		run("clone/web", "--in-place")
		run("ud/clonesettemplate", "ud/statefulsettemplate", "deploy/web", "--in-place")
		for _, plural := range []string{"deployments", "clonesets"} {
			s.Change(t, plural, "web", func(o map[string]any) {
				spec := o["spec"].(map[string]any)
				spec["paused"] = true
				spec["updateStrategy"] = map[string]any{"paused": true, "rollingUpdate": map[string]any{"paused": true}}
			})
		}
		run("deploy/web", "clone/web", "clone/none", "rs/web-deployments-1")
		golden.Compare(t, "restart-"+version, plugintest.Transcript(results...))
	}
}

// A second restart within the same second would change nothing, and says so.
func TestASecondRestartWithinASecondSaysSo(t *testing.T) {
	s := server(t, "v1beta1")
	for _, named := range []string{"clone/web", "deploy/web"} {
		said := false
		for try := 0; try < 20 && !said; try++ { // two that lie on both sides of a second are rare
			result := s.Run(t, command, "rollout", "restart", named)
			said = result.Err != nil && strings.Contains(result.Err.Error(), "restart has already been triggered within the past second")
			if result.Err != nil && !said {
				t.Fatalf("said: got false, want true\n%v", result)
			}
		}
		if !said {
			t.Errorf("%s: nothing is said", named)
		}
	}
}

// OPS-148: Rollouts are approved, described and undone where their API is served, and elsewhere it is said
// that it is not.
func TestRolloutsAreServedWhereTheirAPIIs(t *testing.T) {
	without := plugintest.New(t, "v1beta1")
	results := []plugintest.Result{without.Run(t, command, "rollout", "approve", "web"), without.Run(t, command, "rollout", "describe",
		"rollout/web")}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		s := server(t, "v1beta1")
		s.Serve("rollouts.kruise.io/"+version, "Rollout", "rollouts")
		reference, strategies := "workloadRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}",
			"canary: {steps: [{traffic: 20%, replicas: 1, pause: {}}, {replicas: 50%, pause: {duration: 60}}]}"
		if version == "v1alpha1" {
			reference, strategies = "objectRef: {"+reference+"}",
				"canary: {steps: [{weight: 20, pause: {}}, {replicas: 50%, pause: {duration: 60}}]}"
		}
		rolling := "{currentStepIndex: 1, currentStepState: %s, stableRevision: a, canaryRevision: b, updatedRevision: b, canaryReplicas: 1, " +
			"canaryReadyReplicas: 1, updatedReplicas: 2, updatedReadyReplicas: 1}"
		put := func(name, strategies, status string) {
			s.Put(t, fmt.Sprintf("{apiVersion: rollouts.kruise.io/%s, kind: Rollout, metadata: {name: %s}, spec: {%s, strategy: {%s}}, status: %s}",
				version, name, reference, strategies, status))
		}
		put("web", strategies, "{phase: Progressing, message: step 1 of 2, canaryStatus: "+fmt.Sprintf(rolling, "StepPaused")+"}")
		put("busy", strategies, "{phase: Progressing, canaryStatus: "+fmt.Sprintf(rolling, "StepUpgrade")+"}")
		put("idle", strategies, "{phase: Healthy}")
		put("empty", "", "{}")
		put("blue", "blueGreen: {steps: [{traffic: 50%, replicas: 100%}]}", "{phase: Progressing, blueGreenStatus: "+fmt.Sprintf(rolling,
			"StepPaused")+"}")
		run := func(args ...string) {
			result := s.Run(t, command, append([]string{"rollout"}, args...)...)
			for _, patch := range s.Patches(t) {
				result.Out += "  " + patch + "\n"
			}
			results = append(results, result)
		}
		for _, name := range []string{"web", "rollout/idle", "rollouts/blue", "rollout/empty", "clone/web"} {
			run("describe", name)
		}
		run("approve", "web", "--dry-run=server")
		run("approve", "web", "busy", "idle", "none", "rollout.rollouts.kruise.io/blue")
		run("approve", "web")
		run("describe", "web")
		run("undo", "rollout/web", "--dry-run=server")
		run("undo", "rollout/web", "--to-revision=1")
		run("undo", "rollout/web", "--fast")
		s.Change(t, "rollouts", "web", func(o map[string]any) {
			o["status"].(map[string]any)["canaryStatus"].(map[string]any)["currentStepState"] = "StepPaused"
		})
		run("undo", "rollouts/web", "--fast")
		s.Delete(t, "clonesets", "web")
		run("undo", "rollout/web")
		s.Change(t, "rollouts", "web", func(o map[string]any) { delete(o, "spec") })
		run("undo", "rollout/web")
	}
	golden.Compare(t, "rollouts", plugintest.Transcript(results...))
}

// Several objects at a time: a conflict is tried again with what is there then.
func TestUndoAfterAConflict(t *testing.T) {
	s := server(t, "v1beta1")
	first := true
	s.Before = func(plugintest.Request) error {
		if first {
			first = false
			s.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(9) })
		}
		return nil
	}
	result := s.Run(t, command, "rollout", "undo", "clone/web")
	object := s.Get(t, "clonesets", "web")
	replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	network, _, _ := unstructured.NestedBool(object.Object, "spec", "template", "spec", "hostNetwork")
	if result.Err != nil {
		t.Errorf("error: unexpected error: %v\n%v\n%+v", result.Err, result, object)
	} else if replicas != 9 {
		t.Errorf("replicas: got %d, want 9\n%v\n%+v", replicas, result, object)
	} else if network {
		t.Errorf("network: got true, want false\n%v\n%+v", result, object)
	} else if first {
		t.Errorf("first: got true, want false\n%v\n%+v", result, object)
	}
}
