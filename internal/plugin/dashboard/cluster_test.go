package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// A token of the cluster that expired is not the token of the page: the browser would ask for another address, and
// would not try again.
func TestAnExpiredTokenOfTheCluster(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web)
	b := open(t, api)
	api.BeforeRead = func(plugintest.Request) error { return apierrors.NewUnauthorized("it expired") }
	for _, path := range []string{"/api/workload?", "/api/document?", "/api/revisions?"} {
		if status, answer := b.get(path + about); status != http.StatusBadGateway {
			t.Errorf("%s: got %d %v", path, status, answer)
		}
	}
}

// A workload that is changed and deleted at once is gone, and nothing says later that it is there.
func TestNothingFollowsTheEndOfAWorkload(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	b := open(t, api)
	messages := b.listen("/api/workload?" + about)
	b.await(messages, "the pods", ofType("podsSynced"))
	b.await(messages, "an explanation", ofType("explanation"))

	api.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(9) })
	api.Delete(t, "clonesets", "web")
	b.await(messages, "the end of the workload", ofType("gone"))
	api.Delete(t, "pods", "web-a")
	b.await(messages, "the end of the pod", func(m map[string]any) bool {
		if m["type"] == "workload" {
			t.Errorf("after the end there is %v", m)
		}
		return m["type"] == "podsGone"
	})
}

// A workload that was deleted and made again is another one, with other pods: the page begins anew.
func TestAnotherWorkloadOfTheSameName(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	b := open(t, api)
	messages := b.listen("/api/workload?" + about)
	b.await(messages, "the pods", ofType("podsSynced"))

	api.Delete(t, "clonesets", "web")
	api.Delete(t, "pods", "web-a")
	// The pod is told before its workload is.
	api.Put(t, strings.ReplaceAll(webPod, "uid-cloneset-web", "uid-other"))
	api.Put(t, strings.Replace(web, "name: web,", "name: web, uid: uid-other,", 1))
	for m := range messages { // it ends, and the browser asks again
		if m["type"] == "workload" && m["workload"].(map[string]any)["uid"] == "uid-other" {
			t.Fatal("the page goes on with what it knows of another workload")
		}
	}
	messages = b.listen("/api/workload?" + about)
	b.await(messages, "the pod of the other workload", ofType("pods"))
}

const cronJob = `
apiVersion: apps.kruise.io/v1beta1
kind: AdvancedCronJob
metadata: {name: nightly, namespace: default}
spec: {schedule: '0 0 * * *', template: {}}
`

// A page whose pods are not shown says so, and does not wait for them for ever.
func TestPodsThatAreNotShown(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, cronJob)
	api.BeforeRead = func(r plugintest.Request) error {
		if r.Resource == "pods" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
		}
		return nil
	}
	b := open(t, api)
	for _, query := range []string{about, "resource=advancedcronjobs.apps.kruise.io&namespace=default&name=nightly"} {
		b.await(b.listen("/api/workload?"+query), "the end of the list of pods", ofType("podsSynced"))
	}
}

const sidecars = `
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: log}
spec: {selector: {matchLabels: {app: web}}, containers: [{name: log, image: 'log:1'}]}
`

// The page of a SidecarSet shows the pods of its new selector after that was changed.
func TestAnotherSelector(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", sidecars)
	b := open(t, api)
	const of = "/api/workload?resource=sidecarsets.apps.kruise.io&name=log"
	messages := b.listen(of)
	b.await(messages, "the pods", ofType("podsSynced"))
	api.Put(t, strings.Replace(sidecars, "app: web", "app: db", 1))
	limit := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-messages:
			if !ok {
				return // the browser asks again
			}
		case <-limit:
			t.Fatal("the page goes on with the pods of another selector")
		}
	}
}

var errTest = errors.New("a test lets it fail")

// refusing is a lister whose API server is away for a while after the first list.
type refusing struct{ watches atomic.Int32 }

func (*refusing) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (r *refusing) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	switch {
	case o.SendInitialEvents != nil:
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	case r.watches.Add(1) == 1:
		return nil, syscall.ECONNREFUSED
	}
	return watch.NewFake(), nil
}

// An API server that is away is told, since what the page shows is old meanwhile, and so is that it is back.
func TestAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()
	told := make(chan news, 10)
	go follow(t.Context(), &refusing{}, &corev1.Pod{}, metav1.ListOptions{}, slimPod, func(n news) { told <- n })
	away := false
	limit := time.After(20 * time.Second)
	for {
		select {
		case n := <-told:
			if n.err != nil {
				away = true
			}
			if n.well && away {
				return
			}
		case <-limit:
			t.Fatalf("it was told to be away: %v, and was not told to be back", away)
		}
	}
}

// Events of the pods of another workload, whose name begins with that of this one, are not shown.
func TestEventsOfOthers(t *testing.T) {
	t.Parallel()
	page := &page{object: plugintest.Object(t, web), of: &object{mapping: &meta.RESTMapping{
		GroupVersionKind: schema.FromAPIVersionAndKind("apps.kruise.io/v1beta1", "CloneSet")}}}
	for name, want := range map[string]bool{"web-x7k2p": true, "web-api-x7k2p": false, "webapp-x7k2p": false} {
		about := corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name}
		if got := page.concerns(&corev1.Event{InvolvedObject: about}); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Budgets and spreads of a workload of the same name, but of another group, are not those of this one.
func TestReferencesToOtherGroups(t *testing.T) {
	t.Parallel()
	o := plugintest.Object(t, strings.Replace(web, "kind: CloneSet", "kind: StatefulSet", 1))
	for version, want := range map[string]bool{"apps.kruise.io/v1alpha1": true, "apps/v1": false} {
		target := &policyv1beta1.TargetReference{APIVersion: version, Kind: "StatefulSet", Name: "web"}
		if got := covered(o, nil, target); got != want {
			t.Errorf("%s: got %v", version, got)
		}
	}
}

// The header names the context that the user chose for this command.
func TestTheChosenContext(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web)
	file, cache := api.Kubeconfig(t), t.TempDir()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	another := strings.Replace(string(text), "contexts: [", "contexts: [{name: production, context: {cluster: test}}, ", 1)
	if err := os.WriteFile(file, []byte(another), 0o600); err != nil {
		t.Fatal(err)
	}

	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.CacheDir = &file, &cache
	root := &cobra.Command{Use: "afloat"}
	flags.AddFlags(root.PersistentFlags())
	out, in := io.Pipe()
	root.AddCommand(New(cmdutil.NewFactory(flags), genericiooptions.IOStreams{Out: in, ErrOut: io.Discard}))
	root.SetArgs([]string{"dashboard", "--context=production"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()

	lines := bufio.NewScanner(out)
	lines.Scan()
	address, token, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "The page is at "), "/#token=")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/session", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	session := map[string]any{}
	if err := json.NewDecoder(response.Body).Decode(&session); err != nil || session["context"] != "production" {
		t.Errorf("got %v, %v", session, err)
	}
	_ = response.Body.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Browsers leave the port out of the address if it is that of HTTP.
func TestThePortOfHTTP(t *testing.T) {
	g, err := newGuard("127.0.0.1:80", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "127.0.0.1:80"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", http.NoBody)
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s: got %d", host, w.Code)
		}
	}
}

// A right that is missing is not told as a change by somebody else.
func TestUndoWithoutRights(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web)
	api.BeforeRead = func(r plugintest.Request) error {
		if r.Resource == "controllerrevisions.apps" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "controllerrevisions"}, "", nil)
		}
		return nil
	}
	b := open(t, api)
	if status, answer := b.do(http.MethodPost, "/api/plan", map[string]any{
		"resource": "clonesets.apps.kruise.io", "namespace": "default", "name": "web",
		"change": map[string]any{"action": "undo"},
	}); status != http.StatusForbidden {
		t.Errorf("got %d %v", status, answer)
	}
}

// What was there before a browser asked again is told to be gone, even if nothing has come in its place.
func TestBudgetsThatAreGone(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web)
	b := open(t, api)
	messages := b.listen("/api/workload?" + about)
	seen := map[string]bool{}
	b.await(messages, "budgets and subsets, of which there are none", func(m map[string]any) bool {
		seen[m["type"].(string)] = true
		return seen["budgets"] && seen["subsets"]
	})
}

// What is applied is what was planned, even if another revision is the one before by now: the controller gives the
// revision of the present template a new number when it sees the template.
func TestUndoGoesWhereThePlanWent(t *testing.T) {
	t.Parallel()
	revision := func(number int, image string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: ControllerRevision
metadata:
  name: web-%s
  namespace: default
  labels: {app: web}
  ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: uid-cloneset-web, controller: true}]
revision: %d
data:
  spec:
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: app, image: 'nginx:%s'}, {name: log, image: 'log:1'}]}
`, image, number, image)
	}
	api := plugintest.New(t, "v1beta1", web, revision(1, "0"), revision(2, "1"), revision(3, "2"), node)
	b := open(t, api)
	change := map[string]any{"action": "undo", "toRevision": 0}
	q := map[string]any{
		"resource": "clonesets.apps.kruise.io", "namespace": "default", "name": "web", "change": change,
	}
	status, plan := b.do(http.MethodPost, "/api/plan", q)
	if status != http.StatusOK || plan["toRevision"] != float64(2) {
		t.Fatalf("got %d %v, want a plan that names the revision", status, plan)
	}

	api.Put(t, revision(4, "1"))
	q["generation"], change["toRevision"] = plan["generation"], plan["toRevision"]
	if status, answer := b.do(http.MethodPost, "/api/apply", q); status != http.StatusConflict {
		t.Errorf("got %d %v", status, answer)
	}
	change["toRevision"] = 0
	if status, answer := b.do(http.MethodPost, "/api/apply", q); status != http.StatusBadRequest {
		t.Errorf("without the revision of the plan: got %d %v", status, answer)
	}
	if got := images(api.Get(t, "clonesets", "web")); got[0] != "nginx:1" {
		t.Errorf("got %v, which nobody has planned", got)
	}
}

// Who may list but not watch sees what is listed, and is told that it is old.
func TestRightsToListAlone(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", web, webPod, node)
	api.BeforeRead = func(r plugintest.Request) error {
		if strings.Contains(r.Query, "watch=") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", nil)
		}
		return nil
	}
	b := open(t, api)
	for _, path := range []string{"/api/workload?" + about, "/api/overview"} {
		notes := b.await(b.listen(path), "a note", func(m map[string]any) bool {
			return m["type"] == "notes" && strings.Contains(text(m["notes"]), "watch")
		})
		for _, one := range notes["notes"].([]any) {
			if strings.Contains(one.(string), "may not list") {
				t.Errorf("%s: got %s", path, one)
			}
		}
	}
}
