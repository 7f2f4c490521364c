package admission

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/configuration"
	"github.com/afloat-project/afloat/internal/framework"
)

// podRules are the objects of a kind that select created pods. Every replica follows them.
type podRules interface {
	// Plural returns the name of the objects, such as SidecarSets.
	Plural() string
	// Learn reads the objects of a namespace from the API server, because the cache may not have them yet.
	Learn(ctx context.Context, namespace string) error
	// Creations returns the match condition for the selected pods. Synced reports whether all objects are
	// known that existed at the start, and Changed has a value when the condition may have changed.
	Creations() string
	Synced() bool
	Changed() <-chan struct{}
}

// podRules returns the kinds whose objects select created pods.
func (o Options) podRules() (rules []podRules) {
	if o.Sidecars != nil {
		rules = append(rules, o.Sidecars)
	}
	if o.Spreads != nil {
		rules = append(rules, o.Spreads)
	}
	if o.States != nil {
		rules = append(rules, o.States)
	}
	return rules
}

// mutateRecentPod changes pods of recent rules. The caches of this replica may not have these rules yet, so
// they are read first. It also answers probes that check whether the entry is in force.
func mutateRecentPod(mutate admission.HandlerFunc, rules ...podRules) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
			return framework.Refuse(http.StatusBadRequest, "reading the pod: "+err.Error())
		}
		if token := object.Annotations[configuration.ProbeAnnotation]; token != "" && framework.IsDryRun(&request) {
			return framework.Refuse(http.StatusForbidden, inForce(token))
		}

		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		for _, of := range rules {
			if err := of.Learn(ctx, request.Namespace); err != nil {
				return framework.Refuse(http.StatusInternalServerError, err.Error())
			}
		}

		return mutate(ctx, request)
	}
}

// inForce returns the message that rejects a probing pod.
func inForce(token string) string { return "webhook rule " + token + " is in force" }

// recentPods defines how pods of recent rules are sent. The direct client probes with a pod that is never
// stored.
func recentPods(direct client.Client) *configuration.Recent {
	return &configuration.Recent{
		Of:   mutatePodAllName,
		Name: mutatePodRecentName,
		Path: mutatePodRecentPath,
		Probe: func(ctx context.Context, token string) error {
			no := false
			return direct.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:    metav1.NamespaceDefault,
					GenerateName: "webhook-probe-",
					Annotations:  map[string]string{configuration.ProbeAnnotation: token},
				},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: &no,
					Containers:                   []corev1.Container{{Name: "probe", Image: "probe"}},
				},
			}, client.DryRunAll)
		},
		Found: func(err error, token string) bool {
			return err != nil && strings.Contains(err.Error(), inForce(token))
		},
	}
}
