package framework

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Causes returns the errors in the form that the API server uses.
func Causes(errs field.ErrorList) []metav1.StatusCause {
	causes := make([]metav1.StatusCause, 0, len(errs))
	for _, err := range errs {
		causes = append(causes,
			metav1.StatusCause{Type: metav1.CauseType(err.Type), Message: err.ErrorBody(), Field: err.Field})
	}
	return causes
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// NewCauses returns the causes that an update adds: faults of the stored object are not rejected again. List
// indexes do not matter, because items may have been inserted before, but the number of equal faults does.
func NewCauses(causes, before []metav1.StatusCause) []metav1.StatusCause {
	likeness := func(cause metav1.StatusCause) metav1.StatusCause {
		cause.Field = indexes.ReplaceAllString(cause.Field, "[]")
		return cause
	}
	known := map[metav1.StatusCause]int{}

	for _, cause := range before {
		known[likeness(cause)]++
	}

	var found []metav1.StatusCause
	for _, cause := range causes {
		if known[likeness(cause)]--; known[likeness(cause)] < 0 {
			found = append(found, cause)
		}
	}

	return found
}

// IntroducedErrors returns the faults that the API server finds in an object and, on update, does not find in
// the stored one, which an older server may have accepted. If the API server gave no answer, it returns a
// warning instead.
func IntroducedErrors[T any](
	what string, object, old T, update bool, judge func(T) ([]metav1.StatusCause, error),
) ([]metav1.StatusCause, []string) {
	causes, err := judge(object)
	if err != nil {
		return nil, []string{what + " could not be validated: " + err.Error()}
	}
	if len(causes) > 0 && update {
		if before, err := judge(old); err == nil {
			causes = NewCauses(causes, before)
		}
	}
	return causes, nil
}

// mostCauses and mostMessage limit the size of a rejection: an object with thousands of errors usually has
// the same error thousands of times, and nobody reads them all.
const mostCauses, mostMessage = 100, 32 << 10

// told truncates a message that is too long.
func told(message string) string {
	if len(message) <= mostMessage {
		return message
	}
	return strings.ToValidUTF8(message[:mostMessage], "") + "..."
}

// Invalid rejects a request with its errors, like the API server rejects an invalid object: with code 422 and
// reason Invalid. A plain denial would be 403 and look like missing permissions. If something could not be
// looked up, the code is 500, because a retry may help.
func Invalid(request *admission.Request, causes []metav1.StatusCause) admission.Response {
	var messages []string
	more := len(causes) - mostCauses
	for i := range causes[:min(len(causes), mostCauses)] {
		cause := &causes[i]
		cause.Message = told(cause.Message)
		messages = append(messages, cause.Field+": "+cause.Message)
	}

	if more > 0 {
		messages = append(messages, fmt.Sprintf("and %d more", more))
		causes = causes[:mostCauses]
	}

	list := told(strings.Join(messages, ", "))
	if len(messages) > 1 {
		list = "[" + list + "]"
	}

	kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
	if i := slices.IndexFunc(causes,
		func(c metav1.StatusCause) bool {
			return c.Type == metav1.CauseType(field.ErrorTypeInternal)
		}); i >= 0 {
		return Refuse(http.StatusInternalServerError,
			fmt.Sprintf("%s %q cannot be judged: %s", kind, request.Name, list))
	}

	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s %q is invalid: %s", kind, request.Name, list),
		Details: &metav1.StatusDetails{
			Group:  request.Kind.Group,
			Kind:   request.Kind.Kind,
			Name:   request.Name,
			Causes: causes,
		},
	}}}
}

// Undecodable rejects an object that does not fit the types.
func Undecodable(request *admission.Request, err error) admission.Response {
	return Invalid(request, []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "<document>", Message: err.Error()},
	})
}

// Refuse rejects a request with the HTTP status.
func Refuse(code int32, message string) admission.Response {
	reasons := map[int32]metav1.StatusReason{
		http.StatusBadRequest:            metav1.StatusReasonBadRequest,
		http.StatusForbidden:             metav1.StatusReasonForbidden,
		http.StatusInternalServerError:   metav1.StatusReasonInternalError,
		http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
		http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reasons[code], Message: told(message),
	}}}
}

// BeingDeleted reports whether the request is for an object that is being deleted. If the gate of its kind is off,
// no controller removes its finalizers. Users must be able to, or the object and its namespace could never be
// deleted.
func BeingDeleted(request *admission.Request) bool {
	var old metav1.PartialObjectMetadata
	return request.Operation == admissionv1.Update && json.Unmarshal(request.OldObject.Raw, &old) == nil &&
		old.DeletionTimestamp != nil
}
