package protection

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// Guard checks deletions.
type Guard struct {
	// on is the gate ResourcesDeletionProtection, and definitions the gate
	// DeletionProtectionForCRDCascadingGate.
	on, definitions bool
	counter         *counter
	teller          *Reporter
}

// New returns a Guard that lists with a client, which may be one for any group, and reports rejections to
// teller.
func New(gates *features.Gates, client rest.Interface, teller *Reporter) *Guard {
	return &Guard{
		on:          gates.Enabled(features.ResourcesDeletionProtection),
		definitions: gates.Enabled(features.DeletionProtectionForCRDCascadingGate),
		counter:     newCounter(client),
		teller:      teller,
	}
}

// Handler returns the handler that rejects the deletion of protected objects of the kind, whoever asks for it
// (DP-010, DP-019).
func (g *Guard) Handler(kind Kind) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		var o object
		if !g.on || request.Operation != admissionv1.Delete || request.SubResource != "" ||
			json.Unmarshal(request.OldObject.Raw, &o) != nil || o.Metadata.DeletionTimestamp != nil {
			return admission.Allowed("")
		}

		code, why := g.judge(ctx, kind, &o)
		if why == "" {
			return admission.Allowed("")
		}

		why = fmt.Sprintf("%s %s is protected by label %s=%s%s",
			kind.Name, name(&o), pub.DeletionProtection, o.Metadata.Labels[pub.DeletionProtection], why)
		if !ptr.Deref(request.DryRun, false) { // the entries declare NoneOnDryRun
			g.teller.tell(kind, &request, &o, why)
		}
		if code == http.StatusForbidden {
			return admission.Denied(why + phrase)
		}

		return admission.Errored(code, fmt.Errorf("%s", why))
	}
}

// phrase is what scripts look for in rejections by OpenKruise.
const phrase = " (forbidden by ResourcesProtectionDeletion)"

// name returns the name of an object, with its namespace if it has one. The request for a deletion of a
// collection has no name.
func name(o *object) string { return strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/") }

// judge returns why the object may not be deleted, and how to proceed, or "" if it may.
func (g *Guard) judge(ctx context.Context, kind Kind, o *object) (code int32, why string) {
	const label = "remove the label before deleting it"
	switch value := o.Metadata.Labels[pub.DeletionProtection]; {
	case value == "Always":
		return http.StatusForbidden, ": " + label
	case value != "Cascading" || kind.Contents == nil:
		return 0, ""
	case kind.Name == "CustomResourceDefinition" && !g.definitions:
		return http.StatusForbidden, fmt.Sprintf(", for which feature gate %s is off: switch it on, or %s",
			features.DeletionProtectionForCRDCascadingGate, label)
	}

	switch found, err := kind.Contents(ctx, g, o); {
	case err != nil:
		return http.StatusInternalServerError,
			fmt.Sprintf(", and what it contains is not known: try again, or %s: %v", label, err)
	case found.number > 0:
		return http.StatusForbidden, fmt.Sprintf(" and %s %d>0: %s or %s",
			found.what, found.number, found.remedy, label)
	}

	return 0, ""
}

// reference returns the object of an event.
func reference(request *admission.Request, o *object) *metav1.PartialObjectMetadata {
	kind := request.Kind
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{
			Kind:       kind.Kind,
			APIVersion: strings.TrimPrefix(kind.Group+"/"+kind.Version, "/"),
		},
		ObjectMeta: o.Metadata,
	}
}
