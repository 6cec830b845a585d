"""Cross-validates a pipeline of scikit-learn with a classifier of Tutti."""

from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tutti

X, y = load_iris(return_X_y=True)
pipeline = make_pipeline(StandardScaler(), tutti.Classifier(hidden=[32], epochs=40, lr=0.01))
print("accuracy of 3 folds:", cross_val_score(pipeline, X, y, cv=3).round(3))
