package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/version"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/racetest"
)

// asProgram makes the test's binary the program.
const asProgram = "RUN_AS_KUBECTL_AFLOAT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// raceDetector is a line that a library writes where the test is built with the race detector.
var raceDetector = regexp.MustCompile(`(?m)^.*Data race detection enabled\n`)

// run runs the program and returns what it wrote and its exit code.
func run(t *testing.T, s *plugintest.Server, args ...string) (out string, code int) {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], args...)
	program.Env = []string{asProgram + "=1", "KUBECONFIG=" + s.Kubeconfig(t), "HOME=" + t.TempDir()}
	text, err := program.CombinedOutput()
	exit := &exec.ExitError{}
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return raceDetector.ReplaceAllString(string(text), ""), program.ProcessState.ExitCode()
}

// What the API server says does not steer the terminal.
func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	s := plugintest.New(t, "v1beta1", objects("v1beta1")...)
	s.Before = func(plugintest.Request) error { return errors.New("no\x1b[2J") }
	out, code := run(t, s, "rollout", "pause", "clone/web")
	if code != 1 {
		t.Errorf("exit code: got %d, want 1", code)
	}
	if !strings.Contains(out, "no") {
		t.Errorf("output: got %q, want the error in it", out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("output: got %q, want no control characters", out)
	}
}

const template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: 'nginx:1'}]}}"

func objects(version string) []string {
	return []string{
		"{apiVersion: apps.kruise.io/" + version +
			", kind: CloneSet, metadata: {name: web, uid: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, " + template + "}}",
		"{apiVersion: apps.kruise.io/" + version + ", kind: CloneSet, metadata: {name: other}, spec: {replicas: 3, " + template + "}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: none}}",
		`{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, metadata: {name: web-1, labels: {app: web},
ownerReferences: [{uid: web, controller: true}]},
data: {spec: {template: {$patch: replace, metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "nginx:0"}]}}}}}`,
		`{apiVersion: apps/v1, kind: ControllerRevision, revision: 2, metadata: {name: web-2, labels: {app: web},
ownerReferences: [{uid: web, controller: true}]},
data: {spec: {template: {$patch: replace, metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "nginx:1"}]}}}}}`,
	}
}

// OPS-132: the exit code tells of any error; all objects are tried and the errors come together; mutations
// are patches with a field manager, which change nothing as a dry run; what somebody else changes meanwhile
// stays.
func TestAllObjectsAreTriedAndErrorsSetTheExitCode(t *testing.T) {
	racetest.SkipAlone(t)
	for _, mutation := range []string{"set image app=nginx:2", "set env A=b", "set resources --limits=cpu=1", "set serviceaccount %s builder",
		"rollout pause", "rollout restart",
		"rollout undo --to-revision=1"} {
		s := plugintest.New(t, "v1beta1", objects("v1beta1")...)
		with := func(names ...string) []string {
			var args []string
			for _, word := range strings.Fields(mutation) {
				if word == "%s" {
					args = append(args, names...)
					continue
				}
				args = append(args, word)
			}
			if !strings.Contains(mutation, "%s") {
				args = append(args[:2:2], append(names, args[2:]...)...)
			}
			return args
		}
		for dryRun, writes := range map[string]int{"client": 0, "server": 1} {
			text, code := run(t, s, append(with("clone/web"), "--dry-run="+dryRun)...)
			requests := s.Requests()
			if code != 0 {
				t.Errorf("%s --dry-run=%s: got exit code %d, want 0\n%s", mutation, dryRun, code, text)
			}
			if len(requests) != writes {
				t.Errorf("%s --dry-run=%s: got writes %v, want %d", mutation, dryRun, requests, writes)
			} else if writes > 0 && !strings.Contains(requests[0].Query, "dryRun=All") {
				t.Errorf("%s --dry-run=%s: got query %s, want a dry run", mutation, dryRun, requests[0].Query)
			}
		}
		once := false
		s.Before = func(plugintest.Request) error {
			if !once {
				once = true
				s.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(9) })
			}
			return nil
		}
		text, code := run(t, s, append(with("clone/gone", "configmap/none", "clone/web"), "--field-manager=me")...)
		if code == 0 {
			t.Errorf("%s: exit code 0 although some failed\n%s", mutation, text)
		}
		for _, part := range []string{`"gone" not found`, "configmap/none: ", "cloneset.apps.kruise.io/web "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: got %s, want %q in it", mutation, text, part)
			}
		}
		requests := s.Requests()
		if len(requests) != 2 {
			t.Errorf("%s: got writes %v, want 2", mutation, requests)
		} else if requests[1].Method != http.MethodPatch || requests[1].Query != "fieldManager=me" {
			t.Errorf("%s: got the write %v, want a patch by me", mutation, requests[1])
		} else if strings.Contains(requests[1].Body, "replicas") {
			t.Errorf("%s: got the patch %s, want no replicas in it", mutation, requests[1].Body)
		}
		if replicas := s.Get(t, "clonesets", "web").Object["spec"].(map[string]any)["replicas"]; replicas != int64(9) {
			t.Errorf("%s: what somebody else changed is lost: %v replicas", mutation, replicas)
		}
		s.Before = nil
		if text, code := run(t, s, with("clone/gone")...); code == 0 {
			t.Errorf("%s: exit code 0\n%s", mutation, text)
		}
	}
}

// OPS-131: on a server of either version each kind is changed in that version, by its short name; statefulset
// and daemonset without a group are those of Kubernetes.
func TestVersions(t *testing.T) {
	racetest.SkipAlone(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		ours := "apps.kruise.io/" + version
		s := plugintest.New(t, version)
		for _, head := range []string{ours + ", kind: CloneSet", ours + ", kind: StatefulSet", ours + ", kind: DaemonSet",
			ours + ", kind: BroadcastJob", "apps/v1, kind: StatefulSet", "apps/v1, kind: DaemonSet"} {
			s.Put(t, "{apiVersion: "+head+", metadata: {name: web}, spec: {"+template+"}}")
		}
		s.Put(t, "{apiVersion: "+ours+", kind: UnitedDeployment, metadata: {name: web}, spec: {template: {cloneSetTemplate: {spec: "+
			"{"+template+"}}}}}")
		s.Put(t, "{apiVersion: "+ours+", kind: AdvancedCronJob, metadata: {name: web}, spec: {template: {broadcastJobTemplate: {spec: "+
			"{"+template+"}}}}}")
		s.Put(t, "{apiVersion: "+ours+", kind: SidecarSet, metadata: {name: web}, spec: {containers: [{name: app, image: 'nginx:1'}]}}")
		s.Put(t, "{apiVersion: "+ours+", kind: ImagePullJob, metadata: {name: web}, spec: {image: 'nginx:1'}}")
		at := "/apis/" + ours + "/namespaces/default/"
		for short, path := range map[string]string{"clone": at + "clonesets", "asts": at + "statefulsets", "ads": at + "daemonsets",
			"bcj": at + "broadcastjobs", "acj": at + "advancedcronjobs", "ud": at + "uniteddeployments",
			"sidecarset": "/apis/" + ours + "/sidecarsets", "imagepulljob": at + "imagepulljobs",
			"statefulset": "/apis/apps/v1/namespaces/default/statefulsets", "daemonset": "/apis/apps/v1/namespaces/default/daemonsets"} {
			commands := [][]string{{"set", "image", short, "web", "*=nginx:2"}}
			switch short {
			case "clone", "asts", "ads":
				commands = append(commands, []string{"rollout", "restart", short, "web"}, []string{"rollout", "pause", short, "web"},
					[]string{"rollout", "resume", short, "web"})
			case "ud", "statefulset", "daemonset":
				commands = append(commands, []string{"rollout", "restart", short, "web"})
			case "bcj", "acj", "sidecarset":
				commands = append(commands, []string{"rollout", "pause", short, "web"})
			}
			for _, args := range commands {
				text, code := run(t, s, args...)
				requests := s.Requests()
				if code != 0 {
					t.Errorf("%s %v: got exit code %d, want 0\n%s", version, args, code, text)
				}
				if len(requests) != 1 || requests[0].Path != path+"/web" {
					t.Errorf("%s %v: got writes %v, want one to %s/web", version, args, requests, path)
				}
			}
		}
	}
}

// OPS-210 (part): the plugin tells what it was built from before what kubectl's command says, and leaves
// output for programs as it is.
func TestVersion(t *testing.T) {
	s := plugintest.New(t, "v1beta1")
	out, code := run(t, s, "version", "--client")
	if code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
	want := "Plugin Version: " + version.Get().String() + "\nClient Version: "
	if !strings.HasPrefix(out, want) {
		t.Errorf("output: got %q, want it to begin with %q", out, want)
	}
	out, code = run(t, s, "version", "--client", "-o", "json")
	if code != 0 {
		t.Errorf("exit code with JSON: got %d, want 0", code)
	}
	if !json.Valid([]byte(out)) {
		t.Errorf("output: got %q, want JSON", out)
	}
}
