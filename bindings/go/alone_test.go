package polylimit

import "testing"

func TestOperationsAreAloneAgainAfterManyThatMetNoOther(t *testing.T) {
	limiter := &Limiter{}
	limiter.uses.Add(1)
	if !limiter.isAlone() {
		t.Fatal("a first operation is not alone")
	}
	limiter.uses.Add(1)
	if limiter.isAlone() {
		t.Fatal("two operations are alone")
	}
	limiter.uses.Add(-1)
	for number := range accompaniedFor {
		if limiter.isAlone() {
			t.Fatalf("operation %d after another one is alone", number)
		}
	}
	for range 3 {
		if !limiter.isAlone() {
			t.Fatalf("the operations after %d that met no other are not alone", accompaniedFor)
		}
	}
}
