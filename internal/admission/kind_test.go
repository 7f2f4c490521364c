package admission

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/platform/features"
)

// Registered are the kinds of the registry.
var Registered []Kind

// The paths that configurations of other releases have, too (OPS-060).
const (
	mutateCloneSetPath         = "/mutate-apps-kruise-io-cloneset"
	validateCloneSetPath       = "/validate-apps-kruise-io-cloneset"
	mutateRecreatePath         = "/mutate-apps-kruise-io-containerrecreaterequest"
	mutateSidecarSetPath       = "/mutate-apps-kruise-io-sidecarset"
	validateSidecarSetPath     = "/validate-apps-kruise-io-sidecarset"
	validateWorkloadSpreadPath = "/validate-apps-kruise-io-workloadspread"
	mutateNodeImagePath        = "/mutate-apps-kruise-io-nodeimage"
	validateNodeImagePath      = "/validate-apps-kruise-io-nodeimage"
	mutatePullJobPath          = "/mutate-apps-kruise-io-imagepulljob"
	validatePullJobPath        = "/validate-apps-kruise-io-imagepulljob"
	mutatePullListPath         = "/mutate-apps-kruise-io-imagelistpulljob"
	validatePullListPath       = "/validate-apps-kruise-io-imagelistpulljob"
)

// registered are the handlers of the kinds of the registry, with the default gates.
func registered(t *testing.T, pods podWebhooks) map[string]admission.Handler {
	t.Helper()
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	return admissionHandlers(&Environment{Options: Options{Kinds: Registered, Gates: gates}}, pods)
}

// handlers are those of kinds of images, by path.
func (w *imageWebhooks) handlers() map[string]admission.Handler {
	made := func(webhooks Webhooks) func(*Environment) Webhooks {
		return func(*Environment) Webhooks { return webhooks }
	}
	return admissionHandlers(&Environment{Options: Options{Kinds: []Kind{{Name: "NodeImage", Webhooks: made(w.nodes())},
		{Name: "ImagePullJob", Webhooks: made(w.pullJobs())}, {Name: "ImageListPullJob", Webhooks: made(w.listJobs())}}}}, podWebhooks{})
}
