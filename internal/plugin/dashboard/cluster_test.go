package dashboard

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
