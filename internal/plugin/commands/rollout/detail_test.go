package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// pod is a pod of a revision.
func pod(name, owner, labels string, ready bool) string {
	is := map[bool]string{true: `"True"`, false: `"False"`}[ready]
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web, %s}, ownerReferences: [{kind: Owner, name: "+
		"web, uid: %s, controller: true}]}, status: {conditions: [{type: Ready, status: %s}]}}",
		name, labels, owner, is)
}

// OPS-140: one object of each kind is followed, by its type and name in both ways of writing: until it is
// done, or only once, at most for some time, and while it is of the revision that is wanted. More than one,
// and one that is deleted meanwhile, are errors. OPS-143: the updated pods are named, those that are ready
// and those that are not, of all kinds.
func TestStatusOfAllKinds(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		united := kind{"apps.kruise.io/" + version, "UnitedDeployment", "uniteddeployments", "uniteddeployment.apps.kruise.io/web"}
		for _, k := range append(kinds(version), united) {
			document := k.document() + "    updateStrategy: {type: RollingUpdate}\n"
			newest, oldest := "web-"+strings.ReplaceAll(k.plural, ".", "-")+"-3", "web-"+strings.ReplaceAll(k.plural, ".", "-")+"-2"
			document += fmt.Sprintf("status: {observedGeneration: 1, replicas: 3, updateRevision: %s, updatedRevision: %s, updatedReplicas: 2, "+
				"updatedReadyReplicas: 1, "+
				"desiredNumberScheduled: 3, updatedNumberScheduled: 2, readyReplicas: 2}\n", newest, newest)
			s := plugintest.New(t, version, document, k.stored(t, 2, past(2), "{}"), k.stored(t, 3, asFlow(t, present), "{}"))
			owner, label := "web-"+k.plural, "controller-revision-hash: '%s'"
			inOld := owner
			switch k.kind {
			case "Deployment":
				owner, inOld = "rs-3", "rs-2"
			case "UnitedDeployment":
				label = "apps.kruise.io/controller-revision-hash: '%s'"
			}
			short := newest
			if k.kind == "DaemonSet" { // its pods have the hash alone
				short = "3"
			}
			for _, text := range []string{
				pod("web-b", owner, fmt.Sprintf(label, short), true), pod("web-a", owner, fmt.Sprintf(label, short), true),
				pod("web-c", owner, fmt.Sprintf(label, newest), false), pod("web-old", inOld, fmt.Sprintf(label, oldest), true),
			} {
				s.Put(t, text)
			}
			if k.kind != "UnitedDeployment" {
				s.Put(t, pod("web-other", "somebody", fmt.Sprintf(label, newest), true)) // of another workload with the same selector
			}
			result := s.Run(t, command, "rollout", "status", k.named, "--watch=false", "-d")
			lines := strings.Split(result.Out, "\n")
			if result.Err != nil {
				t.Errorf("%s: error: unexpected error: %v\n%v", version, result.Err, result)
			} else if len(lines) != 4 {
				t.Errorf("%s: number of lines: got %d, want 4\n%v", version, len(lines), result)
			} else if lines[1] != "  Updated ready pods: web-a, web-b" {
				t.Errorf("%s: second line: got %q, want %q\n%v", version, lines[1], "  Updated ready pods: web-a, web-b",
					result)
			} else if lines[2] != "  Updated pods that are not ready: web-c" {
				t.Errorf("%s: third line: got %q, want %q\n%v", version, lines[2],
					"  Updated pods that are not ready: web-c", result)
			} else if !strings.Contains(lines[0], "Waiting for ") {
				t.Errorf("%s: first line: got %q, want it to contain %q\n%v", version, lines[0], "Waiting for ", result)
			}
			first := lines[0] + "\n"
			if result := s.Run(t, command, "rollout", "status", k.named, "--watch=false", "--revision=3"); result.Err != nil {
				t.Errorf("error: unexpected error: %v\n%v", result.Err, result)
			} else if result.Out != first {
				t.Errorf("output: got %q, want %q\n%v", result.Out, first, result)
			}
			if result := s.Run(t, command, "rollout", "status", k.named, "--watch=false", "--revision=2"); result.Err == nil {
				t.Errorf("error: got nil, want an error\n%v", result)
			} else if result.Err.Error() != k.named+": desired revision (2) is different from the running revision (3)" {
				t.Errorf("error: got %q, want %q\n%v", result.Err.Error(),
					k.named+": desired revision (2) is different from the running revision (3)", result)
			} else if result.Out != "" {
				t.Errorf("output: got %q, want %q\n%v", result.Out, "", result)
			}
			for _, name := range []string{"web-a", "web-b", "web-c"} {
				s.Delete(t, "pods", name)
			}
			if result := s.Run(t, command, "rollout", "status", k.named, "--watch=false",
				"-d"); result.Out != first+"  Updated ready pods: none\n  Updated pods that are not ready: none\n" {
				t.Errorf("output: got %q, want %q\n%v", result.Out,
					first+"  Updated ready pods: none\n  Updated pods that are not ready: none\n",
					result)
			}
			f := follow(t, s, nil, strings.ReplaceAll(k.named, "/web", ""), "web", "--timeout=1m") // watches, as it does by default
			f.line(lines[0])
			f.step(2, time.Minute)
			f.ended(k.named + ": timed out after 1m0s: " + lines[0])
			f = follow(t, s, nil, k.named)
			f.line(lines[0])
			s.Change(t, k.plural, "web", func(o map[string]any) {
				status := o["status"].(map[string]any)
				for _, field := range []string{"updatedReplicas", "updatedReadyReplicas", "availableReplicas", "updatedNumberScheduled", "numberReady",
					"numberAvailable", "readyReplicas"} {
					status[field] = int64(3)
				}
				status["currentRevision"] = status["updateRevision"]
			})
			f.ends()
			s.Change(t, k.plural, "web", func(o map[string]any) { o["metadata"].(map[string]any)["generation"] = int64(2) }) // not observed
			f = follow(t, s, nil, k.named, "-w")
			f.seen()
			s.AwaitWatches(t, 1)
			s.Put(t, strings.Replace(strings.Replace(document, "name: web", "name: other", 1), "uid: web", "uid: other", 1))
			if result := s.Run(t, command, "rollout", "status", k.named, strings.ReplaceAll(k.named, "/web", "/other")); result.Err == nil {
				t.Errorf("error: got nil, want an error\n%v", result)
			} else if result.Err.Error() != "exactly one resource must be named, and these are 2" {
				t.Errorf("error: got %q, want %q\n%v", result.Err.Error(),
					"exactly one resource must be named, and these are 2", result)
			}
			s.Delete(t, k.plural, "web")
			f.ended(k.named + ": object has been deleted")
		}
	}
}

// ends waits for the end without an error, after a line.
func (f *following) ends() {
	f.t.Helper()
	f.seen()
	f.ended("<nil>")
}

// seen waits for lines, whatever they are.
func (f *following) seen() {
	f.t.Helper()
	select {
	case <-f.lines:
	case err := <-f.end:
		if len(f.lines) == 0 {
			f.t.Fatalf("it ended with %v", err)
		}
		f.end <- err // it printed the line before it ended
		<-f.lines
	case <-time.After(limit):
		f.t.Fatal("there is no line")
	}
}
