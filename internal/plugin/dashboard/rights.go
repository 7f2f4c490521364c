package dashboard

import (
	"cmp"
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// rights says what the user can do with a workload: what its kind allows, and the user's rights.
type rights struct {
	Change  bool `json:"change"`
	Pause   bool `json:"pause"`
	Undo    bool `json:"undo"`
	Restart bool `json:"restart"`
	Scale   bool `json:"scale"`

	// reason says which right is missing. It is empty if none is.
	reason string
}

// rights asks the API server what the user may do. If it cannot be asked, the page offers everything, and the
// API server refuses what is not allowed.
func (s *server) rights(ctx context.Context, o *object, document *unstructured.Unstructured) rights {
	allowed, reason := true, ""
	review, err := s.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: o.Namespace,
				Verb:      "patch",
				Group:     o.mapping.Resource.Group,
				Resource:  o.mapping.Resource.Resource,
				Name:      o.Name,
			},
		}}, metav1.CreateOptions{})
	if err == nil && !review.Status.Allowed {
		allowed = false
		reason = fmt.Sprintf("%s may not patch %s", cmp.Or(s.user, "you"), o.resource())
		if o.Namespace != "" {
			reason += " in namespace " + o.Namespace
		}
	}

	kind := o.kind()
	_, pausable := workload.Paused(document)
	_, scales, _ := unstructured.NestedInt64(document.Object, "spec", "replicas")
	return rights{
		Change:  allowed,
		Pause:   allowed && pausable,
		Undo:    allowed && revisioned(kind) && kind != workloadkind.UnitedDeployment,
		Restart: allowed && (workloadkind.Of(kind).InPlace || kind == workloadkind.UnitedDeployment),
		Scale:   allowed && scales,
		reason:  reason,
	}
}
