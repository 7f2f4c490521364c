package dashboard

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

const (
	united = `
apiVersion: apps.kruise.io/v1beta1
kind: UnitedDeployment
metadata: {name: shop, namespace: default}
spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {}, topology: {subsets: [{name: a}]}}
status: {updatedRevision: shop-7d, currentRevision: shop-7d}
`
	child = `
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata:
  name: web
  namespace: default
  labels: {apps.kruise.io/controller-revision-hash: 7d}
  ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, name: shop, uid: uid-uniteddeployment-shop, controller: true}]
spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {}}
`
	aboutUnited = "resource=uniteddeployments.apps.kruise.io&namespace=default&name=shop"
)

var unitedPod = strings.Replace(webPod, "{app: web,", "{app: web, apps.kruise.io/controller-revision-hash: 7d,", 1)

// A pod of a UnitedDeployment is new if it has the revision of the UnitedDeployment.
func TestPodsOfAUnitedDeployment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ version, status string }{
		{"v1beta1", "updatedRevision: shop-7d"},
		{"v1alpha1", "updateStatus: {updatedRevision: shop-7d}"},
	} {
		text := strings.Replace(united, "updatedRevision: shop-7d", test.status, 1)
		api := plugintest.New(t, test.version, strings.Replace(text, "v1beta1", test.version, 1),
			strings.ReplaceAll(child, "v1beta1", test.version), unitedPod, node)
		b := open(t, api)
		tiles := b.await(b.listen("/api/workload?"+aboutUnited), "pods", ofType("pods"))["pods"].([]any)
		if got := tiles[0].(map[string]any); got["state"] != "new" || got["revision"] != "7d" {
			t.Errorf("%s: got %v", test.version, got)
		}
	}
}

// Who controls a pod is asked again if it could not be read.
func TestOwnersThatCannotBeReadAtOnce(t *testing.T) {
	t.Parallel()
	api := plugintest.New(t, "v1beta1", united, child, unitedPod, node)
	failed := false
	api.BeforeRead = func(r plugintest.Request) error {
		if r.Resource == "clonesets.apps.kruise.io" && strings.Contains(r.Query, "metadata.name%3Dweb") && !failed {
			failed = true
			return apierrors.NewInternalError(errTest)
		}
		return nil
	}
	b := open(t, api)
	messages := b.listen("/api/workload?" + aboutUnited)
	b.await(messages, "a note about the owners", func(m map[string]any) bool {
		return m["type"] == "notes" && strings.Contains(text(m["notes"]), "whose pods")
	})
	b.await(messages, "the pod", ofType("pods"))
}
