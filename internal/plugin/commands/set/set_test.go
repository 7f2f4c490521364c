package set_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/commands/set"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const pods = `
      metadata: {labels: {app: web}}
      spec:
        fieldOfTomorrow: {kept: true}
        initContainers:
        - {name: prepare, image: "busybox:1"}
        containers:
        - name: app
          image: nginx:1
          fieldOfTomorrow: kept
          env: [{name: COLOR, value: blue}, {name: PLACE, valueFrom: {configMapKeyRef: {name: where, key: place}, fieldOfTomorrow: kept}}]
          resources: {limits: {cpu: 1000m, memory: 1Gi}}
        - {name: log, image: "fluent:1"}
`

// workload is an object with pods in its template.
func workload(version, kind, name string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, labels: {app: web}}\nspec:\n    replicas: 3\n    template:%s", version,
		kind, name, pods)
}

// nested is an object with pods below the fields of a path.
func nested(version, kind, name string, path ...string) string {
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, labels: {app: web}}\n", version, kind, name)
	for i, field := range path {
		text += strings.Repeat(" ", i) + field + ":\n"
	}
	return strings.TrimRight(text, "\n") + pods
}

func server(t *testing.T, version string) *plugintest.Server {
	t.Helper()
	kruise := "apps.kruise.io/" + version
	return plugintest.New(t, version,
		workload("apps/v1", "Deployment", "web"), workload("apps/v1", "StatefulSet", "web"), workload("apps/v1", "DaemonSet", "web"),
		workload("apps/v1", "ReplicaSet", "web"), workload("v1", "ReplicationController", "web"),
		workload(kruise, "CloneSet", "web"), workload(kruise, "StatefulSet", "web"), workload(kruise, "DaemonSet", "web"),
		workload(kruise, "BroadcastJob", "web"),
		nested("batch/v1", "CronJob", "web", "spec", "jobTemplate", "spec", "template"),
		nested(kruise, "AdvancedCronJob", "web", "spec", "template", "broadcastJobTemplate", "spec", "template"),
		nested(kruise, "UnitedDeployment", "web", "spec", "template", "cloneSetTemplate", "spec", "template"),
		nested(kruise, "UnitedDeployment", "sts", "spec", "template", "statefulSetTemplate", "spec", "template"),
		nested(kruise, "UnitedDeployment", "asts", "spec", "template", "advancedStatefulSetTemplate", "spec", "template"),
		nested(kruise, "UnitedDeployment", "deploy", "spec", "template", "deploymentTemplate", "spec", "template"),
		`{apiVersion: `+kruise+`, kind: SidecarSet, metadata: {name: logs, labels: {app: web}},
spec: {containers: [{name: app, image: "nginx:1", podInjectPolicy: BeforeAppContainer}], initContainers: [{name: prepare, image:
"busybox:1"}]}}`,
		`{apiVersion: `+kruise+`, kind: ImagePullJob, metadata: {name: pull}, spec: {image: "nginx:1"}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: where}, data: {place: here, some-key: x}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: keys}, data: {token: c2VjcmV0}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: admins}, roleRef: {kind: Role, name: admin}}`,
	)
}

// OPS-131 (part): both versions of each kind, by their short names; statefulset and daemonset without a group
// are those of Kubernetes.
//
// OPS-150, SS-259: images of containers and init containers are set, by name or all of them, of all kinds
// with a pod template, of SidecarSets, and of ImagePullJobs, of objects by name, by label, all of a kind,
// from files, or locally; only what differs is sent; unknown containers are errors.
func TestImagesAreSetInAllKindsAndVersions(t *testing.T) {
	const app, log, prepare = ` {"op":"replace","path":"%s/containers/0/image","value":"nginx:2"}`,
		` {"op":"replace","path":"%s/containers/1/image","value":"nginx:2"}`,
		` {"op":"replace","path":"%s/initContainers/0/image","value":"nginx:2"}`
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		kruise, s := "/apis/apps.kruise.io/"+version+"/namespaces/default/", server(t, version)
		for resource, at := range map[string][2]string{
			"deploy/web":                       {"/apis/apps/v1/namespaces/default/deployments/web", "/spec/template/spec"},
			"statefulset/web":                  {"/apis/apps/v1/namespaces/default/statefulsets/web", "/spec/template/spec"},
			"daemonset/web":                    {"/apis/apps/v1/namespaces/default/daemonsets/web", "/spec/template/spec"},
			"rs/web":                           {"/apis/apps/v1/namespaces/default/replicasets/web", "/spec/template/spec"},
			"rc/web":                           {"/api/v1/namespaces/default/replicationcontrollers/web", "/spec/template/spec"},
			"cj/web":                           {"/apis/batch/v1/namespaces/default/cronjobs/web", "/spec/jobTemplate/spec/template/spec"},
			"clone/web":                        {kruise + "clonesets/web", "/spec/template/spec"},
			"asts/web":                         {kruise + "statefulsets/web", "/spec/template/spec"},
			"ads/web":                          {kruise + "daemonsets/web", "/spec/template/spec"},
			"bcj/web":                          {kruise + "broadcastjobs/web", "/spec/template/spec"},
			"acj/web":                          {kruise + "advancedcronjobs/web", "/spec/template/broadcastJobTemplate/spec/template/spec"},
			"ud/web":                           {kruise + "uniteddeployments/web", "/spec/template/cloneSetTemplate/spec/template/spec"},
			"ud/sts":                           {kruise + "uniteddeployments/sts", "/spec/template/statefulSetTemplate/spec/template/spec"},
			"ud/asts":                          {kruise + "uniteddeployments/asts", "/spec/template/advancedStatefulSetTemplate/spec/template/spec"},
			"uniteddeployments/deploy":         {kruise + "uniteddeployments/deploy", "/spec/template/deploymentTemplate/spec/template/spec"},
			"sidecarset/logs":                  {strings.TrimSuffix(kruise, "namespaces/default/") + "sidecarsets/logs", "/spec"},
			"imagepulljob.apps.kruise.io/pull": {kruise + "imagepulljobs/pull", ""},
		} {
			result := s.Run(t, set.New, "set", "image", resource, "*=nginx:2")
			if result.Err != nil {
				t.Errorf("%s: %v", resource, result)
			}
			if !strings.HasSuffix(result.Out, " image updated\n") {
				t.Errorf("%s: got output %q, want that the image was updated", resource, result.Out)
			}
			want := at[0] + fmt.Sprintf(app+log+prepare, at[1], at[1], at[1])
			switch at[1] {
			case "/spec":
				want = at[0] + fmt.Sprintf(app+prepare, at[1], at[1])
			case "":
				want = at[0] + ` {"op":"replace","path":"/spec/image","value":"nginx:2"}`
			}
			if got := s.Patches(t); len(got) != 1 || got[0] != want {
				t.Errorf("%s: sent %s\nwant %s", resource, got, want)
			}
		}
	}
	s := server(t, "v1beta1")
	one := fmt.Sprintf(app, "/spec/template/spec")
	clone := "/apis/apps.kruise.io/v1beta1/namespaces/default/clonesets/"
	s.Put(t, strings.NewReplacer("name: web", "name: other", "app: web", "app: other").Replace(workload("apps.kruise.io/v1beta1", "CloneSet",
		"web")))
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(workload("apps.kruise.io/v1beta1", "CloneSet", "web")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"clonesets -l app=other app=nginx:2", []string{clone + "other" + one}},
		{"clonesets -l app=other app=nginx:2", nil}, // is it already
		{"clonesets --all app=nginx:2", []string{clone + "web" + one}},
		{"-f " + file + " app=nginx:3", []string{clone + "web" + strings.ReplaceAll(one, ":2", ":3")}},
		{"-f " + file + " app=nginx:4 --local", nil},
		{"clone/web app=nginx:4 --dry-run=client", nil},
		{"clone/web prepare=busybox:2 log=fluent:2", []string{clone +
			`web {"op":"replace","path":"/spec/template/spec/containers/1/image","value":"fluent:2"} ` +
			`{"op":"replace","path":"/spec/template/spec/initContainers/0/image","value":"busybox:2"}`}},
		{"sidecarset/logs prepare=busybox:2 app=nginx:2", []string{"/apis/apps.kruise.io/v1beta1/sidecarsets/logs" + fmt.Sprintf(app, "/spec") +
			` {"op":"replace","path":"/spec/initContainers/0/image","value":"busybox:2"}`}},
	} {
		result := s.Run(t, set.New, append([]string{"set", "image"}, strings.Fields(tt.args)...)...)
		if result.Err != nil {
			t.Errorf("set image %s: %v", tt.args, result)
		}
		if diff := cmp.Diff(tt.want, s.Patches(t)); diff != "" {
			t.Errorf("patches of set image %s (-want +got):\n%s", tt.args, diff)
		}
	}
	if result := s.Run(t, set.New, "set", "image", "clone/web", "app=x", "nobody=x", "nothing=x"); result.Err == nil ||
		!strings.Contains(result.Err.Error(), `unable to find container named "nobody", unable to find container named "nothing"`) {
		t.Errorf("containers that do not exist: got %v, want an error with their names", result)
	}
	if got := s.Requests(); len(got) > 0 {
		t.Error("an image was set although another container is unknown", got)
	}
}

// OPS-132 (part): all objects are tried, and the errors come together; a conflict is tried again with what is
// there then, and what somebody else changed stays; dry runs change nothing; the field manager is sent.
func TestAllObjectsAreTriedAndErrorsComeTogether(t *testing.T) {
	s := server(t, "v1beta1")
	result := s.Run(t, set.New, "set", "image", "clone/web", "clone/missing", "cm/where", "deploy/web", "app=nginx:2")
	for _, want := range []string{`clonesets.apps.kruise.io "missing" not found`,
		"configmap/where: a ConfigMap has no pod template"} {
		if text := fmt.Sprint(result.Err); !strings.Contains(text, want) {
			t.Errorf("error: got %s, want %s in it", text, want)
		}
	}
	if got := len(s.Requests()); got != 2 {
		t.Errorf("%d objects were changed, of two that can be", got)
	}
	var writes atomic.Int32
	s.Before = func(r plugintest.Request) error {
		if writes.Add(1) == 1 {
			s.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(9) })
		}
		return nil
	}
	result = s.Run(t, set.New, "set", "image", "clone/web", "app=nginx:3", "--field-manager=me")
	if result.Err != nil {
		t.Errorf("set image while somebody else writes: %v", result)
	}
	if n := writes.Load(); n != 2 {
		t.Errorf("writes while somebody else writes: got %d, want 2", n)
	}
	after := s.Get(t, "clonesets", "web")
	replicas, _, _ := unstructured.NestedInt64(after.Object, "spec", "replicas")
	tomorrow, _, _ := unstructured.NestedBool(after.Object, "spec", "template", "spec", "fieldOfTomorrow", "kept")
	if got := image(after); got != "nginx:3" {
		t.Errorf("image: got %s, want nginx:3", got)
	}
	if replicas != 9 {
		t.Errorf("replicas that somebody else wrote: got %d, want 9", replicas)
	}
	if !tomorrow {
		t.Errorf("the field that is not known has gone: %v", after)
	}
	for _, r := range s.Requests() {
		if r.Query != "fieldManager=me" {
			t.Errorf("query of the patch: got %s, want the field manager me", r.Query)
		}
	}
	s.Before = nil
	once := true
	s.Before = func(plugintest.Request) error {
		if once {
			s.Change(t, "daemonsets", "web", func(o map[string]any) {
				spec := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
				spec["containers"] = spec["containers"].([]any)[1:]
			})
		}
		once = false
		return nil
	}
	result = s.Run(t, set.New, "set", "image", "daemonset/web", "log=fluent:2")
	if result.Err != nil {
		t.Error("a patch that no longer fits is not tried again", result)
	}
	if got := image(s.Get(t, "daemonsets", "web")); got != "fluent:2" {
		t.Errorf("image after a patch that no longer fits: got %s, want fluent:2", got)
	}
	s.Before = nil
	s.Requests()
	for how, count := range map[string]int{"client": 0, "server": 1} {
		result := s.Run(t, set.New, "set", "image", "clone/web", "app=nginx:4", "--dry-run="+how, "-o",
			"jsonpath={.spec.template.spec.containers[0].image}")
		requests := s.Requests()
		if result.Out != "nginx:4" {
			t.Errorf("dry run %s: got %v, want the output nginx:4", how, result)
		}
		if len(requests) != count {
			t.Errorf("dry run %s: got requests %v, want %d", how, requests, count)
		}
		if got := image(s.Get(t, "clonesets", "web")); got != "nginx:3" {
			t.Errorf("dry run %s: the image became %s", how, got)
		}
		if want := "dryRun=All&fieldManager=kubectl-afloat"; count > 0 && requests[0].Query != want {
			t.Errorf("dry run %s: got query %s, want %s", how, requests[0].Query, want)
		}
	}
	s.Before = func(r plugintest.Request) error {
		s.Change(t, "clonesets", "web", func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{"n": fmt.Sprint(writes.Add(1))}
		})
		return nil
	}
	if result := s.Run(t, set.New, "set", "image", "clone/web", "app=nginx:5"); result.Err == nil ||
		!strings.Contains(result.Err.Error(), "changed by somebody else again and again") {
		t.Errorf("conflicts without end: got %v, want an error that says so", result)
	}
}

func image(object *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	return list[0].(map[string]any)["image"].(string)
}

// OPS-151: variables are set, removed, read from the standard input and from ConfigMaps and Secrets, some
// keys or all, with a prefix, in containers by a pattern; they are listed, resolved, and not overwritten if
// the user says so; of all objects, by label, and locally.
func TestEnv(t *testing.T) {
	s := server(t, "v1beta1")
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(workload("apps.kruise.io/v1beta1", "CloneSet", "local")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Put(t, strings.ReplaceAll(workload("apps.kruise.io/v1beta1", "CloneSet", "other"), "app: web", "app: other"))
	var results []plugintest.Result
	run := func(in string, args ...string) {
		result := s.RunWith(t, in, set.New, append([]string{"set", "env"}, args...)...)
		for i := range result.Args {
			result.Args[i] = strings.ReplaceAll(result.Args[i], file, "web.yaml")
		}
		results = append(results, result)
	}
	patched := func() {
		for _, body := range s.Patches(t) {
			results[len(results)-1].Out += "  " + body + "\n"
		}
	}
	for _, args := range []string{
		"clone/web --list", "clone/web -c app --list --resolve", "clone/web COLOR=red -c a*", "clone/web COLOR=red -c a*",
		"clone/web COLOR- NEW=1",
		"clone/web --list", "clone/web NEW=2 --overwrite=false", "clone/web NEW=1 OTHER=2 --overwrite=false", "clone/web COLOR=x -c nobody",
		"clone/web --from=configmap/where -c app", "clone/web --from=secret/keys --prefix=DB_ -c log",
		"deploy/web --from=configmap/where --keys=place -c log", "deploy/web --from=configmap/where --keys=missing", "deploy/web --from=svc/web",
		"clonesets -l app=other E=1 -c log", "clonesets --all E=1 -c log", "sidecarset/logs A=b", "sidecarset/logs A-", "clone/web A=b A-",
		"A=b clone/web",
		"clone/web", "clone/web --keys=a", "clone/web --list -o yaml", "ud/web A=b -c app", "clone/web -e KEY=value=more -c prepare",
		"-f " + file + " A=b --local --dry-run=server", "-f " + file + " A=b -c app COLOR- PLACE- --local -o yaml",
		"-f " + file + " --from=secret/keys --local", "clone/web --list --dry-run=client X=y -c log",
	} {
		run("", strings.Fields(args)...)
		patched()
	}
	run("# a comment\nONE=1\nTWO=2 # two\n", "clone/web", "-e", "-", "-c", "prepare")
	patched()
	s.Delete(t, "configmaps", "where")
	run("", "clone/web", "--list", "--resolve", "-c", "app")
	golden.Compare(t, "env", plugintest.Transcript(results...))
	tomorrow := false
	list, _, _ := unstructured.NestedSlice(s.Get(t, "clonesets", "web").Object, "spec", "template", "spec", "containers")
	for _, one := range list[0].(map[string]any)["env"].([]any) {
		from, _ := one.(map[string]any)["valueFrom"].(map[string]any)
		tomorrow = tomorrow || from["fieldOfTomorrow"] == "kept"
	}
	if !tomorrow {
		t.Error("a field that the client does not know is lost")
	}
}

// OPS-152: limits and requests are set, in containers by a pattern; service accounts of templates; selectors
// of Services and subjects of role bindings, by kubectl's own commands.
func TestResourcesAccountsSelectorsAndSubjects(t *testing.T) {
	s := server(t, "v1beta1")
	s.Change(t, "deployments", "web", func(o map[string]any) {
		o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["serviceAccount"] = "old"
	})
	var results []plugintest.Result
	for _, args := range []string{
		"resources clone/web --limits=cpu=1,memory=2Gi -c a*", "resources clone/web --limits=cpu=1,memory=2Gi -c app",
		"resources asts/web --requests=cpu=100m",
		"resources sidecarset/logs --limits=cpu=1 --requests=memory=1Mi", "resources clone/web", "resources clone/web --limits=cpu",
		"resources clone/web --limits=cpu=x",
		"resources clone/web --limits=cpu=1 -c nobody", "resources clone/web --limits=cpu=1 -c [", "resources ud/asts --limits=cpu=2 -c log",
		"serviceaccount clone/web builder", "sa clone/web deploy/web sidecarset/logs pod/none builder", "sa ud/web builder",
		"sa acj/web builder", "sa",
		"resources clonesets --all -l a=b --limits=cpu=2", "image clone/web", "image clone/web *=a app=b", "image app=b",
		"image imagepulljob/pull app=b",
		"image deploy/web app=nginx:9 --record", "nothing",
	} {
		result := s.Run(t, set.New, append([]string{"set"}, strings.Fields(args)...)...)
		for _, body := range s.Patches(t) {
			result.Out += "  " + body + "\n"
		}
		results = append(results, result)
	}
	for _, args := range []string{"selector service/web app=other",
		"subject rolebinding/admins --user=jane --serviceaccount=default:builder"} {
		result := s.Run(t, set.New, append([]string{"set"}, strings.Fields(args)...)...)
		for _, body := range s.Patches(t) {
			result.Out += "  " + body + "\n"
		}
		results = append(results, result)
	}
	golden.Compare(t, "resources", strings.ReplaceAll(plugintest.Transcript(results...), "'kubectl afloat", "'afloat"))
}
