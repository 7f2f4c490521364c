package fieldcheck

import (
	"strings"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// Amount validates a number or a percentage (CS-025, CS-035).
func Amount(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	if _, err := rollout.Scaled(*value, 100, true); err != nil {
		return field.ErrorList{field.Invalid(path, value.String(),
			`must be an integer not below 0 or a percentage such as "20%"`)}
	}
	return nil
}

// Priority validates an update priority (CS-028).
func Priority(priority *pub.UpdatePriorityStrategy, path *field.Path) field.ErrorList {
	if priority == nil {
		return nil
	}

	var errs field.ErrorList
	if len(priority.WeightPriority) > 0 && len(priority.OrderPriority) > 0 {
		errs = append(errs, field.Invalid(path, "(both)",
			"only one of weightPriority and orderPriority may be set"))
	}

	errs = append(errs, FewTerms(len(priority.WeightPriority), path.Child("weightPriority"))...)
	errs = append(errs, FewTerms(len(priority.OrderPriority), path.Child("orderPriority"))...)

	for i := range priority.WeightPriority {
		term, at := &priority.WeightPriority[i], path.Child("weightPriority").Index(i)
		if term.Weight < 0 || term.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), term.Weight, "must be 0 to 100"))
		}
		selector := at.Child("matchSelector")
		if len(term.MatchSelector.MatchLabels)+len(term.MatchSelector.MatchExpressions) == 0 {
			errs = append(errs, field.Required(selector, "an empty selector would match every pod"))
			continue
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(&term.MatchSelector,
			metavalidation.LabelSelectorValidationOptions{}, selector)...)
	}

	for i, term := range priority.OrderPriority {
		if term.OrderedKey == "" {
			errs = append(errs, field.Required(path.Child("orderPriority").Index(i).Child("orderedKey"),
				"it is the label whose value orders the pods"))
		}
	}

	return errs
}

// mostTerms is the maximum number of terms of an update priority: each is applied to all pods in each pass,
// while other workloads wait.
const mostTerms = 200

// FewTerms validates the number of terms of an order.
func FewTerms(n int, path *field.Path) field.ErrorList {
	if n <= mostTerms {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, mostTerms)}
}

// InPlace validates the options of updates in place (CS-031, CS-035, IPU-022).
func InPlace(strategy *pub.InPlaceUpdateStrategy, path *field.Path) field.ErrorList {
	if strategy == nil {
		return nil
	}

	errs := NotNegative(&strategy.GracePeriodSeconds, path.Child("gracePeriodSeconds"))
	errs = append(errs, NotNegative(strategy.ImagePreDownloadTimeoutSeconds,
		path.Child("imagePreDownloadTimeoutSeconds"))...)
	errs = append(errs, NotNegative(strategy.ImagePreDownloadMinUpdatedReadyPods,
		path.Child("imagePreDownloadMinUpdatedReadyPods"))...)
	if value := strategy.ImagePreDownloadParallelism; value != nil {
		number := intstr.Parse(value.String())
		if number.Type != intstr.Int || number.IntVal < 0 || strings.HasPrefix(value.StrVal, "+") {
			errs = append(errs, field.Invalid(path.Child("imagePreDownloadParallelism"), value.String(),
				"must be an integer not below 0; percentages are not possible"))
		}
	}

	return errs
}

// NotNegative validates a number that may be absent.
func NotNegative[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil || *value >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "must be greater than or equal to 0")}
}
